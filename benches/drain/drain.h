/* Build: cargo build --release -p mlx5-drain; then cc -O2 -Ibenches/drain yours.c -Ltarget/release -lmlx5_drain. What the modes are: src/lib.rs. */
/* C interface by which any driver's poller can be timed on these rings, in one process with others.
 * The ring memory holds the image of the lap's parity before every drain_run call; the consumer index runs on
 * across calls (lap k polls k*nent ..). Work queue contents: see README.md. */
#pragma once
#include <stdint.h>
enum drain_kind { DRAIN_RESP_SEND, DRAIN_RESP_SEND_IMM, DRAIN_REQ_SEND, DRAIN_SRQ_SEND, DRAIN_MIX8,
                  DRAIN_COMP_HASH, DRAIN_COMP_CSUM, DRAIN_ENH_HASH, DRAIN_ETH };
struct drain_params {
    uint8_t *ring; uint32_t nent, cqe_sz, kind, session;
    uint32_t uidx0, qpn0, nqp;        /* queue q has user index uidx0+q and number qpn0+q */
    uint32_t rq_wqe_cnt, sq_wqe_cnt;  /* per queue: rq wr_id[i]=0x1000+i, sq wr_id[i]=0x2000+i, sq wqe_head[i]=i */
    uint32_t has_srq;                 /* srq wr_id[i]=0x3000+i, i < nent */
};
uint32_t drain_modes(void);                     /* number of variants: poll_cq into a 48-byte ibv_wc, iterator, burst … */
const char *drain_mode_name(uint32_t mode);
void *drain_new(const struct drain_params *p, uint32_t mode);   /* NULL: this variant does not support this ring */
/* Drain up to `want` completions in polls of `batch`; add wr_id + byte_len + status of each to *sum (byte_len 0 for a
 * requester); returns the number drained. */
uint32_t drain_run(void *h, uint32_t batch, uint32_t want, uint64_t *sum);
void drain_free(void *h);
