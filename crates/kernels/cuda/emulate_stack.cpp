// Switching from one stack to another.
#include "emulate_fiber.hpp"

namespace track_emulate {

#ifdef TRACK_UCONTEXT
extern "C" void track_emulate_switch(Context *from, Context *to) { swapcontext(&from->state, &to->state); }
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = STACK;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}
#else
// Saves what a called function must keep, then takes up the other stack. It returns where that fiber called it: mostly
// the place where this one did, so that the processor's own stack of return addresses predicts it.
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.p2align 4
.globl track_emulate_switch
.hidden track_emulate_switch
.type track_emulate_switch, %function
track_emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size track_emulate_switch, .-track_emulate_switch
.popsection
)");
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    // A function begins 8 bytes beside a multiple of 16, as after a call.
    void **top = reinterpret_cast<void **>(stack + STACK) - 1;
    *top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int saved = 0; saved < 6; saved++)
        *--top = nullptr;
    context.sp = top;
}
#else
asm(R"(
.pushsection .text
.p2align 4
.globl track_emulate_switch
.hidden track_emulate_switch
.type track_emulate_switch, %function
track_emulate_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    ldr x9, [x1]
    mov sp, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size track_emulate_switch, .-track_emulate_switch
.popsection
)");
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    unsigned char *top = stack + STACK - 160;
    memset(top, 0, 160);
    *reinterpret_cast<void **>(top + 88) = reinterpret_cast<void *>(entry);
    context.sp = top;
}
#endif
#endif

} // namespace track_emulate
