/*-------------------------------------------------------------------------
 *
 * cb_stat_file.c
 *	  Counters of all indexes in a file, while the server is down.
 *
 * pg_stat/cache_batch.stat has a header, then one CbStatSaved for each index.
 * It is written by the postmaster at its end, and read and removed by the next
 * one, so there is none while the server runs, and none in its base backups.
 *
 * It belongs to one clean shutdown of one server (C15): the header has the
 * system identifier, and where in WAL the shutdown's checkpoint is.  The
 * postmaster also ends with exit code 0 after an immediate shutdown, which is
 * a crash, so the control file is asked.
 *
 * Whatever is wrong here, the server starts and stops all the same: a message
 * goes to its log, and the counters begin at zero.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_stat_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#define CB_STAT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/cache_batch.stat"
#define CB_STAT_FILE_TMP	CB_STAT_FILE ".tmp"

#define CB_STAT_FILE_MAGIC	0x43425354
#define CB_STAT_FILE_FORMAT	1

typedef struct CbStatFileHeader
{
	uint32		magic;
	uint32		format;
	uint32		ncounters;		/* of an index */
	uint32		nentries;
	uint64		system_identifier;
	XLogRecPtr	shutdown;		/* the checkpoint of this shutdown */
	uint64		crc;			/* of what stands before it, and all entries */
} CbStatFileHeader;

StaticAssertDecl(sizeof(CbStatFileHeader) == 40 &&
				 sizeof(CbStatSaved) == 8 + CB_NUM_COUNTERS * 8,
				 "what is written has no padding");

/*
 * Says who this server is and where its last shutdown's checkpoint is; false
 * if it was not shut down cleanly.
 */
static bool
cb_stat_file_identify(CbStatFileHeader *header)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool		clean = crc_ok &&
		(control->state == DB_SHUTDOWNED ||
		 control->state == DB_SHUTDOWNED_IN_RECOVERY);

	header->system_identifier = control->system_identifier;
	header->shutdown = control->checkPoint;
	pfree(control);
	return clean;
}

static uint64
cb_stat_file_crc(const CbStatFileHeader *header, const CbStatSaved *entries)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, header, offsetof(CbStatFileHeader, crc));
	COMP_CRC32C(crc, entries, header->nentries * sizeof(CbStatSaved));
	FIN_CRC32C(crc);
	return crc;
}

/* ---------- writing ---------- */

/* Writes the file under its other name; errno tells why it could not. */
static bool
cb_stat_file_write(const CbStatFileHeader *header, const CbStatSaved *entries)
{
	FILE	   *file = AllocateFile(CB_STAT_FILE_TMP, PG_BINARY_W);
	bool		written;

	if (file == NULL)
		return false;
	written = fwrite(header, sizeof(*header), 1, file) == 1 &&
		fwrite(entries, sizeof(*entries), header->nentries, file) ==
		header->nentries;
	return FreeFile(file) == 0 && written;
}

/*
 * Writes the counters, unless the server was not shut down cleanly.  Called
 * when all other processes are gone.
 */
void
cb_stat_file_save(const CbStatSaved *entries, uint32 n)
{
	CbStatFileHeader header = {CB_STAT_FILE_MAGIC, CB_STAT_FILE_FORMAT,
	CB_NUM_COUNTERS, n};

	if (!cb_stat_file_identify(&header))
		return;
	header.crc = cb_stat_file_crc(&header, entries);
	if (!cb_stat_file_write(&header, entries))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", CB_STAT_FILE_TMP)));
		unlink(CB_STAT_FILE_TMP);
		return;
	}
	(void) durable_rename(CB_STAT_FILE_TMP, CB_STAT_FILE, LOG);
}

/* ---------- reading ---------- */

/*
 * Reads header and entries.  Returns what is wrong with them, or NULL; then
 * *entries is the caller's.
 */
static const char *
cb_stat_file_read(FILE *file, CbStatFileHeader *header, CbStatSaved **entries)
{
	struct stat st;
	Size		size;

	if (fstat(fileno(file), &st) != 0 ||
		fread(header, sizeof(*header), 1, file) != 1 ||
		header->magic != CB_STAT_FILE_MAGIC)
		return "It is damaged.";
	if (header->format != CB_STAT_FILE_FORMAT ||
		header->ncounters != CB_NUM_COUNTERS)
		return "It is of another version.";
	size = header->nentries * sizeof(CbStatSaved);
	if (st.st_size != sizeof(*header) + size)
		return "It is damaged.";
	*entries = palloc_extended(Max(size, 1), MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (*entries == NULL)
		return "There is no memory for it.";
	if (fread(*entries, 1, size, file) != size ||
		cb_stat_file_crc(header, *entries) != header->crc)
	{
		pfree(*entries);
		return "It is damaged.";
	}
	return NULL;
}

/* The same, of this server's last shutdown. */
static const char *
cb_stat_file_read_own(FILE *file, CbStatSaved **entries, uint32 *n)
{
	CbStatFileHeader header;
	CbStatFileHeader own;
	const char *fault = cb_stat_file_read(file, &header, entries);

	if (fault != NULL)
		return fault;
	*n = header.nentries;
	if (!cb_stat_file_identify(&own) || own.shutdown != header.shutdown)
		fault = "It is not of the server's last shutdown.";
	if (own.system_identifier != header.system_identifier)
		fault = "It is another server's.";
	if (fault != NULL)
		pfree(*entries);
	return fault;
}

/*
 * Reads the counters and removes the file; NULL if there is none, or none that
 * is good.  What is returned is the caller's.
 */
CbStatSaved *
cb_stat_file_load(uint32 *n)
{
	FILE	   *file = AllocateFile(CB_STAT_FILE, PG_BINARY_R);
	CbStatSaved *entries;
	const char *fault;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", CB_STAT_FILE)));
		return NULL;
	}
	fault = cb_stat_file_read_own(file, &entries, n);
	if (fault != NULL)
		ereport(LOG,
				(errmsg("ignoring statistics file \"%s\"", CB_STAT_FILE),
				 errdetail_internal("%s", fault)));
	FreeFile(file);
	unlink(CB_STAT_FILE);
	return fault == NULL ? entries : NULL;
}
