/*-------------------------------------------------------------------------
 *
 * cb_atomic.h
 *	  The atomics of src/core: C11's, named once.
 *
 * Orderings stand with each operation; there are no fences of their own, so
 * that ThreadSanitizer can judge the code.  The types are lock-free on every
 * machine that the server supports, so they work between processes in shared
 * memory as they do between threads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ATOMIC_H
#define CB_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint16_t cb_atomic16;
typedef _Atomic uint32_t cb_atomic32;
typedef _Atomic uint64_t cb_atomic64;

#define cb_load_relaxed(p)		atomic_load_explicit((p), memory_order_relaxed)
#define cb_load_acquire(p)		atomic_load_explicit((p), memory_order_acquire)
#define cb_store_relaxed(p, v)	atomic_store_explicit((p), (v), memory_order_relaxed)
#define cb_store_release(p, v)	atomic_store_explicit((p), (v), memory_order_release)
#define cb_fetch_add(p, v)		atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
#define cb_fetch_sub(p, v)		atomic_fetch_sub_explicit((p), (v), memory_order_acq_rel)

/* compare and swap; on failure *expected is what was found */
#define cb_swap_if(p, expected, v) \
	atomic_compare_exchange_strong_explicit((p), (expected), (v), \
											memory_order_acq_rel, \
											memory_order_acquire)

#endif							/* CB_ATOMIC_H */
