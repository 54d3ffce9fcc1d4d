/*
 * main.c - paper_bench PART [NAME=VALUE...]: one of the parts, with options
 * that its file's head names.
 */
#include "paper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_TOGGLE_COLLECT
#endif

static int	nargs;
static char **args;

const char *
option_text(const char *name, const char *otherwise)
{
	size_t		len = strlen(name);

	for (int i = 0; i < nargs; i++)
	{
		if (strncmp(args[i], name, len) == 0 && args[i][len] == '=')
			return args[i] + len + 1;
	}
	return otherwise;
}

double
option(const char *name, double otherwise)
{
	const char *text = option_text(name, NULL);

	return text == NULL ? otherwise : atof(text);
}

bool
option_has(const char *method)
{
	const char *text = option_text("methods", NULL);
	size_t		len = strlen(method);

	while (text != NULL && *text != '\0')
	{
		size_t		n = strcspn(text, ",");

		if (n == len && memcmp(text, method, n) == 0)
			return true;
		text += n + (text[n] == ',');
	}
	return option_text("methods", NULL) == NULL;
}

double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec * 1e9 + (double) t.tv_nsec;
}

double
median(double *values, int n)
{
	for (int i = 1; i < n; i++)
	{
		double		value = values[i];
		int			j = i;

		for (; j > 0 && values[j - 1] > value; j--)
			values[j] = values[j - 1];
		values[j] = value;
	}
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void
count_begin(void)
{
	CALLGRIND_START_INSTRUMENTATION;
}

void
count_on(void)
{
	CALLGRIND_TOGGLE_COLLECT;
}

void
count_off(void)
{
	CALLGRIND_TOGGLE_COLLECT;
}

void *
memory_get(size_t size)
{
	void	   *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
							  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		die("out of memory");
	(void) madvise(memory, size, MADV_NOHUGEPAGE);
	return memory;
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		int			(*run) (void);
	}			parts[] = {
		{"buckets", buckets_main}, {"lookup", lookup_main}, {"leaves", leaves_main},
		{"fingers", fingers_main}, {"place", place_main}
	};

	nargs = argc;
	args = argv;
	for (size_t i = 0; argc > 1 && i < sizeof(parts) / sizeof(parts[0]); i++)
	{
		if (strcmp(argv[1], parts[i].name) == 0)
			return parts[i].run();
	}
	fprintf(stderr, "usage: paper_bench buckets|lookup|leaves|fingers|place [NAME=VALUE...]\n");
	return 2;
}
