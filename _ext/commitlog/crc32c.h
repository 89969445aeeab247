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

typedef uint32_t nsq_crc_function(uint32_t state, const void *data, size_t size);

static uint32_t nsq_crc_table[8][256];

static inline uint64_t nsq_load64(const unsigned char *bytes) {
    uint64_t value;
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
    for (; size > 0; size--, bytes++)
        state = __builtin_ia32_crc32qi(state, *bytes);
    return state;
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

static inline int nsq_crc_has_instruction(void) {
    return (getauxval(AT_HWCAP) & 1 << 7) != 0; /* HWCAP_CRC32 */
}
#endif

static nsq_crc_function *nsq_crc_run = nsq_crc_by_table;

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
#ifdef NSQ_CRC_INSTRUCTION
    if (nsq_crc_has_instruction())
        nsq_crc_run = nsq_crc_by_instruction;
#endif
}

static inline uint32_t nsq_crc32c(uint32_t crc, const void *data, size_t size) {
    return ~nsq_crc_run(~crc, data, size);
}

static inline uint32_t nsq_crc32c_number(uint32_t crc, uint64_t number) { return nsq_crc32c(crc, &number, 8); }

#endif
