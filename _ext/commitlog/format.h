/* The files of the commit log, as docs/DURABILITY.md describes them: head, batch, record. */
#ifndef NSQFAST_COMMITLOG_FORMAT_H
#define NSQFAST_COMMITLOG_FORMAT_H

#include <stdint.h>
#include <string.h>

#include "commitlog/crc32c.h"

enum {
    NSQ_QUARTER_COUNT = 4,
    NSQ_RING_VERSION = 1,
    NSQ_HEAD_SIZE = 4096, /* of each of its two blocks */
    NSQ_SECTOR_SIZE = 512, /* batches start on multiples of it at least */
    NSQ_EPOCH_SIZE = 16,
};
#define NSQ_SEQUENCE_MAX (UINT64_C(1) << 62) /* a million batches a second for a hundred thousand years */
#define NSQ_HEAD_MAGIC 0x6871736eu  /* "nsqh" */
#define NSQ_BATCH_MAGIC 0x6271736eu /* "nsqb" */

typedef struct {
    uint32_t crc; /* of the block's bytes from 4 on; the rest of the block is zeros */
    uint32_t magic;
    uint32_t version;
    uint32_t reserved;
    uint64_t generation;
    uint8_t epoch[NSQ_EPOCH_SIZE];
    uint64_t quarter_size;
    uint64_t needed_from;
    uint64_t failed[NSQ_QUARTER_COUNT]; /* the batch whose write failed in this quarter; 0 = none did */
    uint64_t interval_from; /* those before it were on disk, it and later ones may be synced by time; 0 = none ever was */
} nsq_head;

typedef struct {
    uint32_t crc; /* of bytes 4 to 64, seeded with the epoch's */
    uint32_t magic;
    uint64_t sequence;
    uint64_t needed_from;
    uint64_t place;
    uint32_t length; /* of header and records */
    uint32_t count;
    uint32_t records_crc; /* of the records' CRC fields, in order */
    uint32_t previous; /* the CRC of the header of the batch before; 0 = unknown, or there is none */
    int64_t wall_ns;
    uint64_t unsynced; /* how many batches right before it were perhaps not on disk when it was written */
} nsq_batch;

typedef struct {
    uint32_t crc; /* of bytes 4 to length, seeded with epoch, sequence and place */
    uint32_t length; /* of header and payload */
    uint8_t kind;
    uint8_t flags;
    uint16_t extra;
    uint32_t subject;
} nsq_record;

_Static_assert(sizeof(nsq_head) == 96 && sizeof(nsq_batch) == 64 && sizeof(nsq_record) == 16, "no padding");

static inline uint64_t nsq_make_place(uint32_t quarter, uint64_t offset) { return (uint64_t)quarter << 48 | offset; }
static inline uint32_t nsq_place_quarter(uint64_t place) { return (uint32_t)(place >> 48); }
static inline uint64_t nsq_place_offset(uint64_t place) { return place & ((UINT64_C(1) << 48) - 1); }

static inline uint64_t nsq_align_up(uint64_t size, uint64_t align) { return (size + align - 1) & ~(align - 1); }

static inline uint32_t nsq_epoch_seed(const uint8_t *epoch) { return nsq_crc32c(0, epoch, NSQ_EPOCH_SIZE); }

static inline uint32_t nsq_record_crc(const char *record, uint32_t length, uint32_t batch_seed, uint64_t place) {
    return nsq_crc32c(nsq_crc32c_number(batch_seed, place), record + 4, length - 4);
}

/* Returns its size with padding; 0 if no whole record stands at these `rest` bytes. */
static inline uint64_t nsq_record_check(const char *data, uint64_t rest, uint32_t batch_seed, uint64_t place) {
    const nsq_record *record = (const nsq_record *)data;
    if (rest < sizeof *record || record->kind == 0 || record->length < sizeof *record)
        return 0;
    uint64_t padded = nsq_align_up(record->length, 8);
    if (padded > rest || record->crc != nsq_record_crc(data, record->length, batch_seed, place))
        return 0;
    return padded;
}

/* Fills in the sums of up to three records from `at` on. Returns where the next one begins. */
static inline uint64_t nsq_records_seal(char *data, const nsq_batch *header, uint64_t at, uint32_t seed,
                                        uint32_t *records_crc) {
    char *records[3];
    const char *from[3];
    size_t sizes[3];
    uint32_t crcs[3];
    int count = 0;
    for (; count < 3 && at < header->length; count++) {
        records[count] = data + at;
        from[count] = data + at + 4;
        sizes[count] = ((nsq_record *)(data + at))->length - 4;
        crcs[count] = nsq_crc32c_number(seed, header->place + at);
        at += nsq_align_up(sizes[count] + 4, 8);
    }
    if (count == 3)
        nsq_crc32c_three(crcs, from, sizes);
    for (int i = 0; i < count; i++) {
        ((nsq_record *)records[i])->crc = count == 3 ? crcs[i] : nsq_crc32c(crcs[i], from[i], sizes[i]);
        *records_crc = nsq_crc32c(*records_crc, records[i], 4);
    }
    return at;
}

/* Fills in the sums of the records and of the header, and puts that in front of them. */
static inline void nsq_batch_seal(char *data, nsq_batch *header, uint32_t epoch_seed) {
    uint32_t seed = nsq_crc32c_number(epoch_seed, header->sequence);
    header->records_crc = 0;
    for (uint64_t at = sizeof *header; at < header->length;)
        at = nsq_records_seal(data, header, at, seed, &header->records_crc);
    header->magic = NSQ_BATCH_MAGIC;
    header->crc = nsq_crc32c(epoch_seed, (char *)header + 4, sizeof *header - 4);
    memcpy(data, header, sizeof *header);
}

/* Whether a batch's header stands at these bytes, which are at this place. */
static inline int nsq_is_batch(const char *data, uint32_t epoch_seed, uint64_t place, uint64_t quarter_size) {
    const nsq_batch *header = (const nsq_batch *)data;
    return header->magic == NSQ_BATCH_MAGIC
           && header->crc == nsq_crc32c(epoch_seed, data + 4, sizeof *header - 4)
           && header->place == place && header->sequence > 0 && header->sequence < NSQ_SEQUENCE_MAX
           && header->needed_from <= header->sequence && header->unsynced < header->sequence
           && header->length >= sizeof *header && header->length % 8 == 0
           && header->length <= quarter_size - nsq_place_offset(place);
}

/* Whether all records behind the header are whole, too. */
static inline int nsq_is_whole(const char *data, uint32_t epoch_seed) {
    const nsq_batch *header = (const nsq_batch *)data;
    uint32_t seed = nsq_crc32c_number(epoch_seed, header->sequence), count = 0, crcs = 0;
    for (uint64_t at = sizeof *header, size; at < header->length; at += size, count++) {
        size = nsq_record_check(data + at, header->length - at, seed, header->place + at);
        if (size == 0)
            return 0;
        crcs = nsq_crc32c(crcs, data + at, sizeof crcs);
    }
    return count == header->count && crcs == header->records_crc;
}

static inline void nsq_head_seal(char *block, nsq_head *head) {
    head->magic = NSQ_HEAD_MAGIC;
    head->version = NSQ_RING_VERSION;
    memset(block, 0, NSQ_HEAD_SIZE);
    memcpy(block, head, sizeof *head);
    head->crc = nsq_crc32c(0, block + 4, NSQ_HEAD_SIZE - 4);
    memcpy(block, &head->crc, sizeof head->crc);
}

static inline int nsq_is_head(const char *block) {
    const nsq_head *head = (const nsq_head *)block;
    return head->magic == NSQ_HEAD_MAGIC && head->crc == nsq_crc32c(0, block + 4, NSQ_HEAD_SIZE - 4);
}

#endif
