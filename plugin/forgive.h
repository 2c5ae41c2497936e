/* SPDX-License-Identifier: Apache-2.0 */
/* The public C interface for training loops: step begin and end, statistics, and the ledger of forgiven ranges. */
#ifndef FORGIVE_PLUGIN_FORGIVE_H_
#define FORGIVE_PLUGIN_FORGIVE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FORGIVE_API_VERSION 1

#if defined(__GNUC__)
#define FORGIVE_EXPORT __attribute__((visibility("default")))
#else
#define FORGIVE_EXPORT
#endif

/* Every function returns FORGIVE_OK or one of the negative codes; forgive_last_error() then says, in one line,
 * what was wrong and what to do. All functions may be called from any thread. */
enum {
  FORGIVE_OK = 0,
  FORGIVE_ERROR_NOT_STARTED = -1, /* the plugin has no engine yet: NCCL has not initialised it */
  FORGIVE_ERROR_BAD_ARGUMENT = -2,
  FORGIVE_ERROR_STEP_OPEN = -3,       /* begin while a step is open, or end of a step that is not */
  FORGIVE_ERROR_RECEIVES_POSTED = -4, /* begin while receives are posted: the step stays reliable */
  FORGIVE_ERROR_LATCHED = -5,         /* the process was latched reliable; the step stays reliable */
  FORGIVE_ERROR_NOT_BUILT = -6,
  FORGIVE_ERROR_NO_MEMORY = -7 /* nothing was done */
};

/* The text of this thread's last error; never NULL. */
FORGIVE_EXPORT const char* forgive_last_error(void);

/* Opens the loss budget of training step `step` (numbers rise): P_low of expected_bytes if critical is not 0,
 * else P_high. expected_bytes: the forgivable bytes that this rank will receive through the plugin in the step;
 * 0: what the last closed step received. Returns when the engine has it. (Seed: Receiver::OnStepBegin.)
 * Called between collectives, device synchronised; see docs/using.md, The operator's word. */
FORGIVE_EXPORT int forgive_step_begin(uint64_t step, int critical, uint64_t expected_bytes);

/* The same, classified by the process's detector (FORGIVE_DETECTOR, docs/detector.md). gradient_norm is that of the
 * step begun before this one: a step's own norm comes too late for its own traffic. Not looked at on the first step
 * of a run, nor where a step is begun once more after a refusal. NaN, infinite and negative norms make the steps
 * after them critical and are counted. */
FORGIVE_EXPORT int forgive_step_begin_norm(uint64_t step, double gradient_norm, uint64_t expected_bytes);

/* Closes the step's budget: nothing is forgiven on its account afterwards. (Seed: OnAllReduceComplete.) */
FORGIVE_EXPORT int forgive_step_end(uint64_t step);

/* What a forgiven byte costs of the budget (FORGIVE_BUDGET_UNIT): 1, or as much as contributions_lost says. */
enum { FORGIVE_BUDGET_BYTES = 0, FORGIVE_BUDGET_CONTRIBUTIONS = 1 };

/* One step's account. Bytes unless said otherwise; counts forgivable bytes only. */
typedef struct forgive_step_stats_v1 {
  uint64_t step;
  uint32_t critical; /* 0 or 1 */
  uint32_t open;     /* 0 or 1 */
  uint32_t p_ppm;
  uint32_t budget_unit; /* FORGIVE_BUDGET_... */
  uint64_t expected;
  uint64_t budget;
  uint64_t received;
  uint64_t forgiven;
  uint64_t outstanding;
  uint64_t contributions_lost; /* sum of forgiven bytes x the ranks whose contribution went with them */
  uint64_t trims;              /* trimmed headers of this step's flows */
  uint64_t settled;            /* received + forgiven, counted also after closing */
  uint64_t budget_violations;  /* times a bound did not hold when checked; always 0 */
  uint64_t begin_ns, end_ns;   /* CLOCK_MONOTONIC; end_ns 0 while open */
} forgive_step_stats_t;

/* Totals of the process since its start, or since init. Bytes unless said otherwise. */
typedef struct forgive_stats_v1 {
  uint64_t size; /* set by the caller to sizeof(forgive_stats_t): an older caller gets the fields it knows */
  uint64_t api_version;
  uint64_t steps;             /* steps begun */
  uint64_t sent_bytes;        /* payload bytes sent, retransmissions included */
  uint64_t sent_exempt_bytes; /* the part of them that was sent while Exempt */
  uint64_t retransmitted_bytes;
  uint64_t received_bytes; /* distinct payload bytes that arrived */
  uint64_t duplicate_bytes;
  uint64_t forgiven_bytes;
  uint64_t contributions_lost;
  uint64_t late_bytes; /* payload that arrived after it had been forgiven, and was discarded */
  uint64_t packets_sent, packets_received;
  uint64_t trims; /* trimmed headers accepted */
  uint64_t marks; /* data packets that arrived with CE */
  uint64_t reports_sent, reports_received;
  /* decisions at a trimmed header, by reason (docs/protocol.md) */
  uint64_t decided_already_settled, decided_not_forgivable, decided_no_open_budget, decided_not_vested,
      decided_over_budget, decided_draw_refused, decided_forgiven;
  /* sender */
  uint64_t rate_cuts_mark, rate_cuts_trim, rate_cuts_timeout;
  uint64_t signals_ignored;               /* congestion signals that an Exempt sender ignored */
  uint64_t timeouts;                      /* retransmission timeouts */
  uint64_t lost_by_request, lost_by_rack; /* packets */
  uint64_t mode_changes;
  /* what was refused before it touched any state, in packets */
  uint64_t bad_tag, malformed, unknown_connection, replayed, bad_crc, out_of_window;
  uint64_t socket_drops;              /* packets the kernel dropped for want of socket buffer, where it says so */
  uint64_t not_posted_operator_latch; /* posts refused eligibility by the 4 x rule */
  uint64_t budget_violations;
  /* What the drivers and the engine saw, in packets. */
  uint64_t send_errors;     /* packets that the kernel refused for good, e.g. as too large: recovered as drops */
  uint64_t truncated;       /* datagrams that arrived cut by a local buffer, or unlike what the driver takes: drops */
  uint64_t raw_packets;     /* cut packets that only the raw path saw */
  uint64_t faults_injected; /* by FORGIVE_FAULT */
  uint64_t stale_reports;   /* reports that had been acted on before, or were too old to tell: not acted on again */
  uint64_t events_full;     /* packets not taken because the endpoint's events had not been drained */
  /* receives in open steps that were eligible, by what proved what they are for (docs/eligibility.md) */
  uint64_t proved_by_attributes, proved_by_profiler, proved_by_operators_word;
  uint64_t refused; /* receives in open steps that may not lose bytes; the statistics file says why */
  uint64_t segment_cuts; /* times a connection went on with smaller packets, as the path swallowed longer ones */
  uint64_t paths;        /* over which each connection sprays (FORGIVE_PATHS) */
  uint64_t paths_given_up, paths_returned; /* times a connection left a path that lost everything, or took it again */
  uint64_t rails;                          /* over which each connection is striped (FORGIVE_RAILS) */
  /* bytes of packets of any kind by each, headers of the transport included; of udp and uring */
  uint64_t rail0_sent_bytes, rail1_sent_bytes, rail2_sent_bytes, rail3_sent_bytes;
  uint64_t rail0_received_bytes, rail1_received_bytes, rail2_received_bytes, rail3_received_bytes;
} forgive_stats_t;

FORGIVE_EXPORT int forgive_stats(forgive_stats_t* out);

/* The account of one step (the last 256 are kept). FORGIVE_ERROR_BAD_ARGUMENT: not known. */
FORGIVE_EXPORT int forgive_step_stats(uint64_t step, forgive_step_stats_t* out);

/* One line of the ledger: message bytes [offset, offset + length) were zero-filled instead of received. */
typedef struct forgive_range_v1 {
  uint64_t receive_comm;  /* the receive communicator as NCCL holds it (the pointer given by accept) */
  uint64_t connection_id; /* as in the data header's connection_id on the wire, host byte order */
  uint64_t step;
  uint32_t message; /* 0-based number of the message on its communicator */
  uint32_t offset;
  uint32_t length;
  uint32_t contributions; /* ranks whose contribution was lost with each byte */
} forgive_range_t;

/* Copies ledger lines `first`, first + 1, ... into out, at most capacity of them, in the order of decision.
 * Returns how many were copied (0: there are no more), or a negative code. The ledger keeps
 * FORGIVE_LEDGER_LINES lines (default 1,048,576); forgive_ledger_lost() says how many were not kept. */
FORGIVE_EXPORT int64_t forgive_forgiven_ranges(uint64_t first, forgive_range_t* out, uint64_t capacity);
FORGIVE_EXPORT uint64_t forgive_ledger_lost(void);

/* ---- The detector of critical steps (docs/detector.md). It needs neither NCCL nor an engine. ---- */

enum {
  FORGIVE_DETECTOR_ACCORDION = 0, /* mean norms of windows */
  FORGIVE_DETECTOR_DBLP = 1,      /* the whole model's norm at the last step of each window */
  FORGIVE_DETECTOR_STEPS = 2      /* a fixed list of steps */
};

typedef struct forgive_detector_config_v1 {
  uint64_t size;    /* set by the caller to sizeof(forgive_detector_config_t) */
  uint32_t kind;    /* FORGIVE_DETECTOR_... */
  uint32_t layers;  /* norms a step brings: 1, the whole model's; else one a layer, and any critical one counts */
  uint64_t window;  /* steps, from 1 */
  double threshold; /* the least |previous - current| / previous that is critical; above 0, up to 1000 */
  const uint64_t* steps; /* of FORGIVE_DETECTOR_STEPS; copied */
  uint64_t step_count;
} forgive_detector_config_t;

typedef struct forgive_detector_stats_v1 {
  uint64_t size; /* set by the caller to sizeof(forgive_detector_stats_t) */
  uint64_t observed_steps;
  uint64_t windows;   /* whole ones */
  uint64_t bad_norms; /* NaN, infinite or negative */
} forgive_detector_stats_t;

typedef struct forgive_detector forgive_detector_t;

/* NULL: forgive_last_error() says why. Destroy it with forgive_detector_destroy. */
FORGIVE_EXPORT forgive_detector_t* forgive_detector_create(const forgive_detector_config_t* config);
FORGIVE_EXPORT void forgive_detector_destroy(forgive_detector_t* detector);
/* The detector that forgive_step_begin_norm asks: for its statistics and checkpoints. NULL: not started. Never
 * destroy it. */
FORGIVE_EXPORT forgive_detector_t* forgive_detector_of_process(void);

/* 1: the step that begins now is critical, by the norms observed so far; 0: it is not; negative: an error. */
FORGIVE_EXPORT int forgive_detector_is_critical(forgive_detector_t* detector, uint64_t step);
FORGIVE_EXPORT int forgive_detector_is_layer_critical(forgive_detector_t* detector, uint32_t layer);
/* The norms of `step`, one a layer. Step numbers rise. */
FORGIVE_EXPORT int forgive_detector_observe(forgive_detector_t* detector, uint64_t step, const double* norms,
                                            uint64_t count);
FORGIVE_EXPORT int forgive_detector_stats(forgive_detector_t* detector, forgive_detector_stats_t* out);

/* The state, for a checkpoint. Returns its length, and copies it if it fits into capacity bytes. */
FORGIVE_EXPORT int64_t forgive_detector_save(forgive_detector_t* detector, void* out, uint64_t capacity);
/* Goes on from a saved state; the configuration must be the saved one. An error leaves the detector as it was. */
FORGIVE_EXPORT int forgive_detector_restore(forgive_detector_t* detector, const void* saved, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif /* FORGIVE_PLUGIN_FORGIVE_H_ */
