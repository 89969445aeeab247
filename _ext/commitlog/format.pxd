"""The files of the commit log, as docs/DURABILITY.md describes them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "commitlog/format.h" nogil:
    enum:
        QUARTER_COUNT "NSQ_QUARTER_COUNT"
        RING_VERSION "NSQ_RING_VERSION"
        HEAD_SIZE "NSQ_HEAD_SIZE"
        SECTOR_SIZE "NSQ_SECTOR_SIZE"
        EPOCH_SIZE "NSQ_EPOCH_SIZE"
        BATCH_HEADER_SIZE "sizeof(nsq_batch)"
        RECORD_HEADER_SIZE "sizeof(nsq_record)"

    const uint64_t SEQUENCE_MAX "NSQ_SEQUENCE_MAX"

    ctypedef struct Head "nsq_head":
        uint32_t version
        uint64_t generation
        uint8_t *epoch
        uint64_t quarter_size
        uint64_t needed_from
        uint64_t *failed
        uint64_t interval_from

    ctypedef struct Batch "nsq_batch":
        uint32_t crc
        uint64_t sequence
        uint64_t needed_from
        uint64_t place
        uint32_t length
        uint32_t count
        uint32_t previous
        int64_t wall_ns
        uint64_t unsynced

    ctypedef struct RecordHeader "nsq_record":
        uint32_t length
        uint8_t kind
        uint8_t flags
        uint16_t extra
        uint32_t subject

    void crc_prepare "nsq_crc_prepare"()
    uint32_t crc32c "nsq_crc32c"(uint32_t crc, const void *data, size_t size)
    uint32_t crc32c_number "nsq_crc32c_number"(uint32_t crc, uint64_t number)

    uint64_t make_place "nsq_make_place"(uint32_t quarter, uint64_t offset)
    uint32_t place_quarter "nsq_place_quarter"(uint64_t place)
    uint64_t place_offset "nsq_place_offset"(uint64_t place)
    uint64_t align_up "nsq_align_up"(uint64_t size, uint64_t align)
    uint32_t epoch_seed "nsq_epoch_seed"(const uint8_t *epoch)
    bint is_batch "nsq_is_batch"(const char *data, uint32_t epoch_seed, uint64_t place, uint64_t quarter_size)
    bint is_whole "nsq_is_whole"(const char *data, uint32_t epoch_seed)
    void head_seal "nsq_head_seal"(char *block, Head *head)
    bint is_head "nsq_is_head"(const char *block)
