// Where the kernels' static __shared__ arrays lie, so that each block finds NaNs in them and not what the block before
// left. They are thread-local variables inside of functions; nothing but the program's own symbol table lists them. A
// program without one (stripped, or not ELF) runs all the same, with less found.
#include "emulate.hpp"

#if defined(__linux__) && defined(__LP64__)
#include <elf.h>
#include <fstream>
#include <link.h>
#include <string>
#include <utility>
#include <vector>

namespace track_emulate {
namespace {

// Offset from the program's thread-local storage, and bytes.
typedef std::vector<std::pair<size_t, size_t>> Arrays;

template <class T> std::vector<T> read(std::ifstream &file, uint64_t at, uint64_t bytes) {
    std::vector<T> values(bytes / sizeof(T));
    file.seekg(static_cast<std::streamoff>(at));
    file.read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    if (!file)
        values.clear();
    return values;
}

Arrays find_arrays() {
    Arrays found;
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const auto header = read<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr));
    if (header.empty() || memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 || header[0].e_shentsize != sizeof(Elf64_Shdr))
        return found;
    const auto sections = read<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr &section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size())
            continue;
        const auto symbols = read<Elf64_Sym>(file, section.sh_offset, section.sh_size);
        const Elf64_Shdr &strings = sections[section.sh_link];
        const auto names = read<char>(file, strings.sh_offset, strings.sh_size);
        for (const Elf64_Sym &symbol : symbols)
            // _ZZ: a variable inside of a C++ function.
            if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && symbol.st_shndx != SHN_UNDEF &&
                symbol.st_name + 3u < names.size() && memcmp(&names[symbol.st_name], "_ZZ", 3) == 0)
                found.emplace_back(symbol.st_value, symbol.st_size);
    }
    return found;
}

// Of this OS thread. Not inside of a function, or it would be taken for an array.
thread_local unsigned char *storage = nullptr;

int take_program(struct dl_phdr_info *info, size_t, void *result) {
    *static_cast<void **>(result) = info->dlpi_tls_data;
    return 1; // the first is the program itself
}

} // namespace

void fill_static_shared(unsigned char value) {
    static const Arrays arrays = find_arrays();
    if (arrays.empty())
        return;
    if (!storage) {
        void *at = nullptr;
        dl_iterate_phdr(take_program, &at);
        storage = static_cast<unsigned char *>(at);
    }
    if (storage)
        for (const auto &array : arrays)
            memset(storage + array.first, value, array.second);
}

} // namespace track_emulate
#else
namespace track_emulate {
void fill_static_shared(unsigned char) {}
} // namespace track_emulate
#endif
