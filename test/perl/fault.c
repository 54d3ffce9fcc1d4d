/*
 * Faults of a machine, for a server that is started with this library in
 * LD_PRELOAD.  The file that CB_FAULT names says which there are now, a line each:
 *
 *	full PART		files whose path has this part can't grow: ENOSPC
 *	readonly PART	files whose path has this part can't be written: EROFS
 *	clock SECONDS	the calendar's clock has been moved by that
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* What stands behind the word in CB_FAULT's file, or NULL; in static memory. */
static const char *
fault_get(const char *word)
{
	static char text[512];
	const char *name = getenv("CB_FAULT");
	size_t		len = strlen(word);
	int			saved = errno;
	int			fd = name ? syscall(SYS_openat, AT_FDCWD, name, O_RDONLY) : -1;
	ssize_t		n = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof(text) - 1);

	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
	text[n > 0 ? n : 0] = '\0';
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;)
	{
		if (strncmp(line, word, len) == 0 && line[len] == ' ')
			return line + len + 1;
	}
	return NULL;
}

static bool
fault_is_about(const char *word, const char *path)
{
	const char *part = fault_get(word);

	return part != NULL && strstr(path, part) != NULL;
}

/* May the file be written up to there?  If not, errno says why. */
static bool
fault_may_write(int fd, off_t end)
{
	char		link[64];
	char		path[4096];
	struct stat st;
	ssize_t		n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	if (fault_is_about("readonly", path))
	{
		errno = EROFS;
		return false;
	}
	if (fault_is_about("full", path) && fstat(fd, &st) == 0 && end > st.st_size)
	{
		errno = ENOSPC;
		return false;
	}
	return true;
}

static off_t
fault_length(const struct iovec *iov, int n)
{
	off_t		length = 0;

	for (int i = 0; i < n; i++)
		length += iov[i].iov_len;
	return length;
}

ssize_t
pwrite(int fd, const void *from, size_t n, off_t at)
{
	return fault_may_write(fd, at + n) ? NEXT(pwrite) (fd, from, n, at) : -1;
}

ssize_t
pwrite64(int fd, const void *from, size_t n, off_t at)
{
	return pwrite(fd, from, n, at);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	return fault_may_write(fd, at + fault_length(iov, n)) ?
		NEXT(pwritev) (fd, iov, n, at) : -1;
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int n, off_t at)
{
	return pwritev(fd, iov, n, at);
}

int
posix_fallocate(int fd, off_t at, off_t n)
{
	return fault_may_write(fd, at + n) ? NEXT(posix_fallocate) (fd, at, n) : errno;
}

int
posix_fallocate64(int fd, off_t at, off_t n)
{
	return posix_fallocate(fd, at, n);
}

static time_t
fault_seconds(void)
{
	const char *seconds = fault_get("clock");

	return seconds ? atol(seconds) : 0;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int			rc = NEXT(gettimeofday) (now, zone);

	now->tv_sec += fault_seconds();
	return rc;
}

time_t
time(time_t *at)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
