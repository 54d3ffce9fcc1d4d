/*-------------------------------------------------------------------------
 *
 * cb_adopt.h
 *	  Operator classes: mirrors btree's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ADOPT_H
#define CB_ADOPT_H

#define CB_ADOPT_AM_NAME	"cachebatch"

/* cb_adopt_link.c */
extern void cb_adopt_init(void);

#endif							/* CB_ADOPT_H */
