// Where a resized picture's cells come from, the same for pictures and for grids of costs.
#pragma once
#include "device.cuh"

// Two source cells and the share of the second.
struct Tap {
    int low, high;
    float weight;
};

// Half-pixel centres, clamped to the border. The products are kept apart from the sums so that every device and the
// CPU (resize.rs) land on the same cells with the same weights.
DEVICE Tap tap(int i, int size, int outputs) {
    const float scale = __fdiv_rn(static_cast<float>(size), static_cast<float>(outputs));
    const float at = fmaxf(__fadd_rn(__fmul_rn(scale, static_cast<float>(i) + 0.5f), -0.5f), 0.0f);
    Tap t;
    t.low = min(static_cast<int>(at), size - 1);
    t.high = min(t.low + 1, size - 1);
    t.weight = at - static_cast<float>(t.low);
    return t;
}
