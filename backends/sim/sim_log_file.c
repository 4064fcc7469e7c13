/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary log file: writing it, and reading it back with every length checked against the size
 * of the file before memory is taken. The layout is told in sim_log.h.
 */
#include "sim_log.h"

#include "sim_log_format.h"

#include <errno.h>
#include <isthmus/backend.h>
#include <stdio.h>
#include <string.h>

#define VERSION 1u
#define HEADER_BYTES 56u
#define RECORD_BYTES 32u
#define NAME_HEADER_BYTES 8u

static const char magic[8] = "ISTLOG1";

static ist_error file_details(const char *operation, uint64_t observed, uint64_t expected)
{
    ist_error details = {.size = sizeof details,
                         .rank = IST_RANK_NONE,
                         .peer = IST_RANK_NONE,
                         .observed = observed,
                         .expected = expected,
                         .object = "event log"};
    (void)snprintf(details.operation, sizeof details.operation, "%s", operation);
    return details;
}

static ist_status raise_io(const char *operation, const char *path, int reason)
{
    const ist_error details = file_details(operation, (uint64_t)reason, 0);
    return ist_raise(IST_ERR_IO, &details, "%s %.120s: %s", operation, path,
                     reason == 0 ? "input/output error" : strerror(reason));
}

/* ------------------------------------------------------------------------------ writing */

static bool write_header(const sim_log *log, FILE *file)
{
    unsigned char bytes[HEADER_BYTES] = {0};
    const uint64_t first = sim_log_first(log);
    memcpy(bytes, magic, sizeof magic);
    sim_put_u32(bytes + 8, VERSION);
    sim_put_u32(bytes + 12, RECORD_BYTES);
    sim_put_u32(bytes + 16, log->name_count);
    sim_put_u64(bytes + 24, sim_log_count(log) - first);
    sim_put_u64(bytes + 32, sim_log_count(log));
    sim_put_u64(bytes + 40, sim_log_digest(log));
    sim_put_u64(bytes + 48, sim_log_digest_from(log, first));
    return fwrite(bytes, sizeof bytes, 1, file) == 1;
}

static bool write_records(const sim_log *log, FILE *file)
{
    unsigned char bytes[SIM_LOG_CHUNK_EVENTS * RECORD_BYTES];
    const uint64_t end = sim_log_count(log);
    for (uint64_t i = sim_log_first(log); i < end;) {
        size_t used = 0;
        for (; used < sizeof bytes && i < end; used += RECORD_BYTES, i++) {
            sim_log_encode(sim_log_at(log, i), bytes + used);
        }
        if (fwrite(bytes, 1, used, file) != used) {
            return false;
        }
    }
    return true;
}

static bool write_names(const sim_log *log, FILE *file)
{
    for (const sim_log_name_entry *entry = log->names; entry != NULL; entry = entry->next) {
        unsigned char bytes[NAME_HEADER_BYTES];
        sim_put_u32(bytes, entry->hash);
        sim_put_u32(bytes + 4, entry->bytes);
        if (fwrite(bytes, sizeof bytes, 1, file) != 1 ||
            fwrite(entry->name, 1, entry->bytes, file) != entry->bytes) {
            return false;
        }
    }
    return true;
}

ist_status sim_log_write(const sim_log *log, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return raise_io("write event log", path, errno);
    }
    errno = 0;
    const bool written =
        write_header(log, file) && write_records(log, file) && write_names(log, file);
    int reason = errno;
    if (fclose(file) != 0 && written) {
        reason = errno;
        return raise_io("write event log", path, reason);
    }
    return written ? IST_OK : raise_io("write event log", path, reason);
}

/* ------------------------------------------------------------------------------ reading */

typedef struct log_header {
    uint64_t name_count;
    uint64_t kept;
    uint64_t count;
    uint64_t digest;
    uint64_t kept_digest;
} log_header;

/* A file being read; left: bytes behind the place reached. */
typedef struct log_reader {
    FILE *file;
    const char *path;
    uint64_t left;
} log_reader;

static ist_status raise_parse(const log_reader *reader, const char *what, uint64_t observed,
                              uint64_t expected)
{
    const ist_error details = file_details("read event log", observed, expected);
    return ist_raise(IST_ERR_PARSE, &details, "event log %.100s: %s is %llu, expected %llu",
                     reader->path, what, (unsigned long long)observed,
                     (unsigned long long)expected);
}

static ist_status read_bytes(log_reader *reader, void *bytes, size_t count, const char *what)
{
    if (reader->left < count) {
        return raise_parse(reader, what, reader->left, count);
    }
    errno = 0;
    if (fread(bytes, 1, count, reader->file) != count) {
        return raise_io("read event log", reader->path, errno);
    }
    reader->left -= count;
    return IST_OK;
}

static ist_status reader_open(log_reader *reader, const char *path)
{
    *reader = (log_reader){.path = path, .file = fopen(path, "rb")};
    if (reader->file == NULL) {
        return raise_io("read event log", path, errno);
    }
    long end = -1;
    if (fseek(reader->file, 0, SEEK_END) == 0 && (end = ftell(reader->file)) >= 0 &&
        fseek(reader->file, 0, SEEK_SET) == 0) {
        reader->left = (uint64_t)end;
        return IST_OK;
    }
    const int reason = errno;
    (void)fclose(reader->file);
    return raise_io("read event log", path, reason);
}

static ist_status read_header(log_reader *reader, log_header *header)
{
    unsigned char bytes[HEADER_BYTES];
    IST_RETURN_IF_ERROR(read_bytes(reader, bytes, sizeof bytes, "header in bytes"));
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        return raise_parse(reader, "magic number", sim_get_u64(bytes),
                           sim_get_u64((const unsigned char *)magic));
    }
    if (sim_get_u32(bytes + 8) != VERSION) {
        return raise_parse(reader, "version", sim_get_u32(bytes + 8), VERSION);
    }
    if (sim_get_u32(bytes + 12) != RECORD_BYTES) {
        return raise_parse(reader, "bytes of a record", sim_get_u32(bytes + 12), RECORD_BYTES);
    }
    *header = (log_header){.name_count = sim_get_u32(bytes + 16),
                           .kept = sim_get_u64(bytes + 24),
                           .count = sim_get_u64(bytes + 32),
                           .digest = sim_get_u64(bytes + 40),
                           .kept_digest = sim_get_u64(bytes + 48)};
    if (header->kept > header->count) {
        return raise_parse(reader, "number of events kept", header->kept, header->count);
    }
    if (header->kept > reader->left / RECORD_BYTES) {
        return raise_parse(reader, "number of events", reader->left / RECORD_BYTES, header->kept);
    }
    return IST_OK;
}

static ist_status read_records(log_reader *reader, const log_header *header, sim_log *log)
{
    unsigned char bytes[SIM_LOG_CHUNK_EVENTS * RECORD_BYTES];
    uint64_t index = header->count - header->kept;
    log->flushed = header->count;
    log->floor = index;
    log->running = header->digest;
    while (index < header->count) {
        const uint64_t rest = (header->count - index) * RECORD_BYTES;
        const size_t piece = rest < sizeof bytes ? (size_t)rest : sizeof bytes;
        IST_RETURN_IF_ERROR(read_bytes(reader, bytes, piece, "records in bytes"));
        for (size_t at = 0; at < piece; at += RECORD_BYTES, index++) {
            sim_log_decode(bytes + at, &log->ring[index & (log->capacity - 1)]);
        }
    }
    const uint64_t digest = sim_log_digest_from(log, log->floor);
    return digest == header->kept_digest
               ? IST_OK
               : raise_parse(reader, "digest of the events", digest, header->kept_digest);
}

static ist_status read_name(log_reader *reader, sim_log *log)
{
    unsigned char bytes[NAME_HEADER_BYTES];
    char name[SIM_LOG_NAME_BYTES_MAX];
    IST_RETURN_IF_ERROR(read_bytes(reader, bytes, sizeof bytes, "name in bytes"));
    const uint32_t count = sim_get_u32(bytes + 4);
    if (count > sizeof name) {
        return raise_parse(reader, "length of a name", count, sizeof name);
    }
    IST_RETURN_IF_ERROR(read_bytes(reader, name, count, "name in bytes"));
    if (!sim_log_name_remember(log, sim_get_u32(bytes), name, count)) {
        return ist_raise(IST_ERR_MEMORY, NULL, "no memory for the names of event log %.100s",
                         reader->path);
    }
    return IST_OK;
}

static ist_status read_all(log_reader *reader, sim_log *log)
{
    log_header header;
    IST_RETURN_IF_ERROR(read_header(reader, &header));
    /* As many as there are, so that each has its place in the ring. */
    IST_RETURN_IF_ERROR(sim_log_init(log, header.kept == 0 ? 1 : header.kept, true));
    ist_status status = read_records(reader, &header, log);
    for (uint64_t i = 0; status == IST_OK && i < header.name_count; i++) {
        status = read_name(reader, log);
    }
    if (status == IST_OK && reader->left != 0) {
        status = raise_parse(reader, "number of bytes after the end", reader->left, 0);
    }
    if (status != IST_OK) {
        sim_log_fini(log);
    }
    return status;
}

ist_status sim_log_read(sim_log *log, const char *path)
{
    log_reader reader;
    memset(log, 0, sizeof *log);
    IST_RETURN_IF_ERROR(reader_open(&reader, path));
    const ist_status status = read_all(&reader, log);
    (void)fclose(reader.file);
    return status;
}
