/*-------------------------------------------------------------------------
 *
 * cb_assert.h
 *	  Assertions of src/core, which knows nothing of the server's.
 *
 * Compiled in with USE_ASSERT_CHECKING or CB_CORE_ASSERT only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ASSERT_H
#define CB_ASSERT_H

#if defined(USE_ASSERT_CHECKING) || defined(CB_CORE_ASSERT)
#undef NDEBUG
#elif !defined(NDEBUG)
#define NDEBUG
#endif

#include <assert.h>

#endif							/* CB_ASSERT_H */
