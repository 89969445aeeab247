/* CRC32C (RFC 3720, B.4): by the processor's instruction where it has one, else by tables, eight bytes at a time.
 *
 * nsq_crc_run() works on the bare register; nsq_crc32c() is the sum as everybody writes it, and can be continued:
 * nsq_crc32c(nsq_crc32c(0, a), b) is the sum of a and b together. Call nsq_crc_prepare() once before. */
#ifndef NSQFAST_CRC32C_H
#define NSQFAST_CRC32C_H

#include <stdint.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the commit log's files are little-endian, and so is whatever reads them in place"
#endif

#define NSQ_CRC_POLYNOMIAL 0x82f63b78u /* bits reversed: the lowest is that of x^31 */
#define NSQ_CRC_PART 1024 /* of a long piece, three of which are summed at once */

typedef uint32_t nsq_crc_function(uint32_t state, const void *data, size_t size);
typedef void nsq_crc_three_function(uint32_t *states, const char *const *data, size_t size);

static uint32_t nsq_crc_table[8][256];
static uint32_t nsq_crc_behind[4][256]; /* what so many zeros as a part has make of a register, by its bytes */

static inline uint64_t nsq_load64(const unsigned char *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t nsq_load32(const unsigned char *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t nsq_crc_by_table(uint32_t state, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t mixed = nsq_load64(bytes) ^ state;
        state = 0;
        for (int i = 0; i < 8; i++)
            state ^= nsq_crc_table[7 - i][mixed >> 8 * i & 255];
    }
    for (; size > 0; size--, bytes++)
        state = nsq_crc_table[0][(state ^ *bytes) & 255] ^ state >> 8;
    return state;
}

#if defined(__x86_64__)
#define NSQ_CRC_INSTRUCTION 1

__attribute__((target("sse4.2"))) static inline uint32_t nsq_crc_by_instruction(uint32_t state, const void *data,
                                                                                size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t wide = state;
    for (; size >= 8; size -= 8, bytes += 8)
        wide = __builtin_ia32_crc32di(wide, nsq_load64(bytes));
    state = (uint32_t)wide;
    if (size >= 4) {
        state = __builtin_ia32_crc32si(state, nsq_load32(bytes));
        size -= 4, bytes += 4;
    }
    for (; size > 0; size--, bytes++)
        state = __builtin_ia32_crc32qi(state, *bytes);
    return state;
}

/* Of three pieces at once: the instruction takes three cycles, and another one can begin in each. */
__attribute__((target("sse4.2"))) static inline void nsq_crc_three_by_instruction(uint32_t *states,
                                                                                  const char *const *data, size_t size) {
    const unsigned char *a = (const unsigned char *)data[0], *b = (const unsigned char *)data[1],
                        *c = (const unsigned char *)data[2];
    uint64_t x = states[0], y = states[1], z = states[2];
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        x = __builtin_ia32_crc32di(x, nsq_load64(a + at));
        y = __builtin_ia32_crc32di(y, nsq_load64(b + at));
        z = __builtin_ia32_crc32di(z, nsq_load64(c + at));
    }
    states[0] = nsq_crc_by_instruction((uint32_t)x, a + at, size - at);
    states[1] = nsq_crc_by_instruction((uint32_t)y, b + at, size - at);
    states[2] = nsq_crc_by_instruction((uint32_t)z, c + at, size - at);
}

static inline int nsq_crc_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__)
#define NSQ_CRC_INSTRUCTION 1

/* As assembly, since compilers disagree on the names of the intrinsics and of what permits them. */
static inline uint32_t nsq_crc_by_instruction(uint32_t state, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (; size >= 8; size -= 8, bytes += 8)
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(nsq_load64(bytes)));
    for (; size > 0; size--, bytes++)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)*bytes));
    return state;
}

static inline void nsq_crc_three_by_instruction(uint32_t *states, const char *const *data, size_t size) {
    for (int i = 0; i < 3; i++)
        states[i] = nsq_crc_by_instruction(states[i], data[i], size);
}

static inline int nsq_crc_has_instruction(void) {
    return (getauxval(AT_HWCAP) & 1 << 7) != 0; /* HWCAP_CRC32 */
}
#endif

static inline void nsq_crc_three_by_table(uint32_t *states, const char *const *data, size_t size) {
    for (int i = 0; i < 3; i++)
        states[i] = nsq_crc_by_table(states[i], data[i], size);
}

static nsq_crc_function *nsq_crc_run = nsq_crc_by_table;
static nsq_crc_three_function *nsq_crc_run_three = nsq_crc_three_by_table;

static inline void nsq_crc_prepare_parts(void) {
    static const char zeros[NSQ_CRC_PART];
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 1; i < 256; i++)
            nsq_crc_behind[k][i] = i & (i - 1) ? nsq_crc_behind[k][i & (i - 1)] ^ nsq_crc_behind[k][i & -i]
                                               : nsq_crc_by_table(i << 8 * k, zeros, NSQ_CRC_PART);
}

static inline void nsq_crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t state = i;
        for (int bit = 0; bit < 8; bit++)
            state = state & 1 ? state >> 1 ^ NSQ_CRC_POLYNOMIAL : state >> 1;
        nsq_crc_table[0][i] = state;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) {
            uint32_t state = nsq_crc_table[k - 1][i];
            nsq_crc_table[k][i] = nsq_crc_table[0][state & 255] ^ state >> 8;
        }
    nsq_crc_prepare_parts();
#ifdef NSQ_CRC_INSTRUCTION
    if (nsq_crc_has_instruction())
        nsq_crc_run = nsq_crc_by_instruction, nsq_crc_run_three = nsq_crc_three_by_instruction;
#endif
}

/* The register behind one more part, which alone makes `part` of 0. */
static inline uint32_t nsq_crc_join(uint32_t state, uint32_t part) {
    return nsq_crc_behind[0][state & 255] ^ nsq_crc_behind[1][state >> 8 & 255] ^ nsq_crc_behind[2][state >> 16 & 255]
           ^ nsq_crc_behind[3][state >> 24] ^ part;
}

static inline uint32_t nsq_crc32c(uint32_t crc, const void *data, size_t size) {
    const char *bytes = (const char *)data;
    uint32_t state = ~crc;
    for (; size >= 3 * NSQ_CRC_PART; size -= 3 * NSQ_CRC_PART, bytes += 3 * NSQ_CRC_PART) {
        const char *parts[3] = {bytes, bytes + NSQ_CRC_PART, bytes + 2 * NSQ_CRC_PART};
        uint32_t states[3] = {state, 0, 0};
        nsq_crc_run_three(states, parts, NSQ_CRC_PART);
        state = nsq_crc_join(nsq_crc_join(states[0], states[1]), states[2]);
    }
    return ~nsq_crc_run(state, bytes, size);
}

/* Continues the sums of three pieces by them; what they have beyond the shortest is summed one after the other. */
static inline void nsq_crc32c_three(uint32_t *crcs, const char *const *data, const size_t *sizes) {
    size_t size = sizes[0] < sizes[1] ? sizes[0] : sizes[1];
    size = (size < sizes[2] ? size : sizes[2]) & ~(size_t)7;
    for (int i = 0; i < 3; i++)
        crcs[i] = ~crcs[i];
    nsq_crc_run_three(crcs, data, size);
    for (int i = 0; i < 3; i++)
        crcs[i] = nsq_crc32c(~crcs[i], data[i] + size, sizes[i] - size);
}

static inline uint32_t nsq_crc32c_number(uint32_t crc, uint64_t number) { return nsq_crc32c(crc, &number, 8); }

#endif
