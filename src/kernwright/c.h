#ifndef KERNWRIGHT_C_H
#define KERNWRIGHT_C_H

#include <stddef.h>

#include <kernwright/version.h>

/* A thin C ABI over kernwright::Service for other languages.
 *
 * Every function that can fail returns 0 on success and -1 on failure. After a failure
 * kw_last_error() has the reason and kw_last_error_code() its kind, for the calling thread. Results
 * that a function returns through a pointer are written only on success. A null pointer where one
 * is needed is a failure, and the reason names it. Releasing and closing NULL does nothing.
 *
 * Functions and enumerators are never removed or renumbered within a SOVERSION. A struct that may
 * grow begins with struct_size, and grows only at its end.
 *
 * The notes of `Service` about forked processes hold here too. The library stays loaded when it is
 * closed with dlclose. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kw_service kw_service;
typedef struct kw_problem kw_problem;
typedef struct kw_text kw_text;
typedef struct kw_kernel kw_kernel;
typedef struct kw_pattern kw_pattern;
typedef struct kw_baked kw_baked;
typedef struct kw_chain_builder kw_chain_builder;
typedef struct kw_chain kw_chain;

/* The kinds of failures. The numbers stay; a later library may have more of them. */
typedef enum kw_error {
  KW_OK = 0,
  KW_INVALID_ARGUMENT =
      1,              /* what the caller passed is wrong; the reason names it and both values */
  KW_NOT_FOUND = 2,   /* the named thing does not exist */
  KW_UNAVAILABLE = 3, /* a driver, toolkit or device that the call needs is not there */
  KW_IO = 4,          /* the file system refused */
  KW_CORRUPT = 5,     /* data failed its checksum or its format */
  KW_COMPILE = 6,     /* the compiler or linker refused the source */
  KW_DEVICE = 7,      /* the driver reported an error */
  KW_TIMED_OUT = 8,   /* a deadline passed */
  KW_REFUSED = 9,     /* the service is sealed, or the stream is in a capture */
  KW_INTERNAL = 10    /* a defect of kernwright */
} kw_error;

/* The level of a message that kw_options.log gets. */
typedef enum kw_log_level { KW_LOG_DEBUG, KW_LOG_INFO, KW_LOG_WARNING } kw_log_level;

/* The settings of a service. For the defaults set all bytes to zero, then set struct_size.
 *
 * Fields are only ever added at the end. Fields that a caller's struct_size leaves out take their
 * defaults. A library that is older than the caller refuses fields that it does not know, unless
 * they are zero. kw_open copies strings and arrays. */
typedef struct kw_options {
  size_t struct_size;       /* sizeof(kw_options) of the caller */
  const char* cache;        /* cache directory, or NULL */
  const char* template_dir; /* a folder with templates of your own, or NULL */
  const char* sku;          /* the profile id to work for without a GPU, or NULL */
  const char* on_miss; /* "predict", "tune_now", "tune_in_background", "fail"; NULL: "predict" */
  int device;          /* the GPU's number */
  double tune_seconds; /* the budget of one tuning of a problem without ranges; 0: 30 */
  const char* l2;     /* the L2 that kernels are tuned for: "cold", "warm", "mixed"; NULL: "cold" */
  const char* worker; /* the program that tuning runs, or NULL to look for it */
  int measure_in_process; /* not 0: no worker; a candidate that faults costs the process the GPU */
  const char* epilogue;   /* a file with a function that problems name as their epilogue, or NULL */
  /* The worst match that is served: "exact", "recheck", "seed", "bucket", "predicted" or "none".
   * NULL: "none". A worse match is a failure, and with any value but "none" nothing is ever
   * compiled. A fleet that has a complete bundle says "recheck". */
  const char* min_match;
  const char* const* read_only_caches; /* further cache directories, which are only read */
  size_t read_only_cache_count;
  const char* const* template_dirs; /* folders with own templates, besides template_dir */
  size_t template_dir_count;
  const char* const* epilogues; /* files like epilogue, besides it */
  size_t epilogue_count;
  double background_seconds; /* GPU time that "tune_in_background" may take in all; 0: 600 */
  int compile_threads;       /* compiles at the same time; 0: all cores but two, at least one */
  int check_launches;        /* not 0: every launch is a kw_launch_checked, for debugging */
  /* Receives warnings and notes, with log_data as it was passed. It is called from any thread.
   * `level` is a kw_log_level. NULL: messages are discarded. The library itself never prints. */
  void (*log)(void* log_data, int level, const char* message);
  void* log_data;
  const char* const* signed_caches; /* bundles that packages bring; see ServiceOptions */
  size_t signed_cache_count;
} kw_options;

/* Opens a service. `options` may be NULL, for the defaults. */
int kw_open(const kw_options* options, kw_service** service);

/* Closes a service. Kernels that it returned stay valid until they are released. */
void kw_close(kw_service* service);

/* Returns the best kernel for a problem in text form, "matmul m=4096 n=6144 k=4096 dtype=bf16". */
int kw_get_best_kernel(kw_service* service, const char* problem, kw_kernel** kernel);

/* Returns the same for a launch on `stream`, which may be in a capture. Then a problem that is not
 * in memory is a failure, whose reason has the remedy, and the capture stays valid. For a problem
 * that is in memory the driver is not asked. */
int kw_get_best_kernel_on(kw_service* service, const char* problem, void* stream,
                          kw_kernel** kernel);

/* Reads a problem in text form once, for many lookups. */
int kw_parse_problem(const char* text, kw_problem** problem);

/* Releases a problem. */
void kw_release_problem(kw_problem* problem);

/* Does the same as kw_get_best_kernel_on, and parses nothing. */
int kw_find_kernel(kw_service* service, const kw_problem* problem, void* stream,
                   kw_kernel** kernel);

/* Looks the best kernel up as kw_find_kernel does, and launches it as kw_launch does. For a problem
 * that is in memory nothing is parsed and nothing allocated. */
int kw_find_and_launch(kw_service* service, const kw_problem* problem, void* stream,
                       const void* const* tensors, size_t tensor_count, const double* scalars,
                       size_t scalar_count, void* workspace);

/* Returns the best kernel and the kernels that may take its place in a chain, for
 * kw_chain_add_alternatives, the most promising first. `kernels` has room for `count`; `found` is
 * set to how many were written. The caller must release each of them. */
int kw_get_best_kernels(kw_service* service, const char* problem, kw_kernel** kernels, size_t count,
                        size_t* found);

/* A tensor of an operation as the caller has it. All bytes that are not used are zero. Tensors are
 * passed as an array, so the size of this struct never changes. */
typedef struct kw_tensor {
  const char* name;     /* the operation's */
  const char* argument; /* the caller's name for it, for messages, or NULL */
  const char* dtype;    /* "bf16"; NULL: it is not compared */
  size_t ndim;
  const long long* extent;
  const long long* strides; /* in elements; NULL: they are not compared */
  /* The caller's axis for each axis of the operation's tensor, or NULL if they are in its order. An
   * axis of the operation that is a product may then be two of the caller's. */
  const size_t* order;
} kw_tensor;

/* Derives the problem of an operation from its tensors, results among them that the caller has. The
 * operation is one of the service, or a built-in one if `service` is NULL. `options` is the
 * operation with the dims, dtypes and flags that tensors do not tell, "attention mask=causal". The
 * problem has the `scalars`, by name. Returns a JSON object: problem, null if all results are
 * empty; refusal, the rule that refuses it, or ""; made, the results that are not given, each with
 * name, dtype, extent and swapped, the two axes that are swapped after it was made contiguous, or
 * null; unwritten, the tensors that this problem only reads; and scalars, by name. */
int kw_bind(const kw_service* service, const char* options, const kw_tensor* tensors,
            size_t tensor_count, const char* const* scalars, size_t scalar_count,
            kw_text** binding);

/* Returns how a problem followed from the sizes and strides of its tensors, for calls that differ
 * in these alone. NULL if there is no problem, or if it depends on more, such as a rule. Arguments
 * and failures are those of kw_bind, but `service` must not be NULL. */
int kw_make_pattern(const kw_service* service, const char* options, const kw_tensor* tensors,
                    size_t tensor_count, const char* const* scalars, size_t scalar_count,
                    kw_pattern** pattern);

/* Releases a pattern. */
void kw_release_pattern(kw_pattern* pattern);

/* Returns the kernel for tensors with other sizes and strides. `numbers` are the extent and the
 * strides of each tensor, in the order that kw_make_pattern took them in. `made` is set to the
 * extents of the results, one after another, and has room for exactly these. `follows` is set to 0
 * if the tensors do not follow the pattern, else to 1. NULL if they do not, or if neither the
 * kernel nor its family is in memory: kw_bind and kw_get_best_kernel then say more. */
int kw_find_by_pattern(kw_service* service, const kw_pattern* pattern, const long long* numbers,
                       size_t count, long long* made, size_t made_count, int* follows,
                       kw_kernel** kernel);

/* Returns the contract of a built-in operation as a JSON object: description, dims, dtypes, flags,
 * tensors, scalars and call. */
int kw_describe_operation(const char* operation, kw_text** description);

/* The progress of a tuning's search. Fields are only ever added at the end. */
typedef struct kw_tune_progress {
  size_t struct_size; /* sizeof(kw_tune_progress) of the library */
  int candidates;     /* all that there are */
  int measured;
  double best_us; /* the best so far; 0 before there is one */
  double seconds; /* since the search began */
} kw_tune_progress;

/* Bounds one tuning. For the defaults set all bytes to zero, then set struct_size. Fields are added
 * as in kw_options. */
typedef struct kw_tune_options {
  size_t struct_size;   /* sizeof(kw_tune_options) of the caller */
  double seconds;       /* the budget; 0: tune_seconds of kw_options, 90 if there are ranges */
  int trials;           /* at most so many candidates are measured; 0: as the budget allows */
  const char* strategy; /* "portfolio", "ranked", "local_search", "random", "exhaustive"; NULL:
                         * "portfolio" */
  /* Hears how far the tuning is, in the calling thread, with `data`; or NULL. */
  void (*progress)(void* data, const kw_tune_progress* progress);
  void* data;
} kw_tune_options;

/* Tunes the problem and returns the winner. `options` may be NULL, for the defaults. If the problem
 * has ranges, `m=1..8192`, all their sizes are tuned together: then `seconds` alone counts, and the
 * kernel of the largest is returned. */
int kw_tune(kw_service* service, const char* problem, const kw_tune_options* options,
            kw_kernel** kernel);

/* Ends the tunings that other threads wait for now, in kw_tune or in a miss that is tuned. They
 * fail soon and keep nothing, and their worker process ends. A prewarming fails soon too. */
int kw_stop_tuning(kw_service* service);

/* Gets the best kernel of every problem, so that later calls find it in memory. Of a problem with
 * ranges the kernels of all sizes are loaded. The reason of a failure lists every problem that
 * cannot be served. */
int kw_prewarm(kw_service* service, const char* const* problems, size_t count);

/* Does the same for the problems of a worklist file, also one that kw_record_shapes wrote. */
int kw_prewarm_worklist(kw_service* service, const char* file);

/* From now on appends every problem that is asked for to `file`, a worklist in lines of JSON that
 * `kernwright sweep` takes; NULL ends the recording, and appends how often each was asked for.
 * Several processes may share the file. */
int kw_record_shapes(kw_service* service, const char* file);

/* From now on tunes each problem that is asked for and was not tuned, for about `seconds` each,
 * before its kernel is returned. 0: kw_options.on_miss holds again. */
int kw_autotune(kw_service* service, double seconds);

/* Declares that all is compiled that will be needed. If `mode` is "error" or NULL, every request
 * that needs a compile from now on fails and names its problem. If `mode` is "warning",
 * kw_options.log is told and the compile goes on. Kernels in memory, or in the cache with their
 * bits, are served as before. */
int kw_seal(kw_service* service, const char* mode);

/* Returns the figures of the service that operators watch, in Prometheus' text format, as
 * Service::metrics does. */
int kw_metrics(const kw_service* service, kw_text** metrics);

/* Returns how the problems that were asked for so far were answered, as a JSON array: [{"match":
 * "exact", "reason": "none", "count": 12}, ...]. */
int kw_lookup_counts(const kw_service* service, kw_text** counts);

/* Returns the record that answers a problem, as Service::record does. `form` is "json" or NULL, or
 * "html". */
int kw_record(const kw_service* service, const char* problem, const char* form, kw_text** record);

/* Returns the characters of a text, which are valid until it is released. NULL if `text` is NULL.
 */
const char* kw_characters(const kw_text* text);

/* Releases a text. */
void kw_release_text(kw_text* text);

/* Releases a kernel. */
void kw_release(kw_kernel* kernel);

/* Returns the device bytes that a launch needs as workspace; often 0. (size_t)-1 if `kernel` is
 * NULL. */
size_t kw_workspace_bytes(const kw_kernel* kernel);

/* Returns the text of the kernel's problem, which is valid until the kernel is released. NULL if
 * `kernel` is NULL. */
const char* kw_problem_of(const kw_kernel* kernel);

/* Returns a JSON object: problem, template, configuration, match, measured_us, predicted_us,
 * arguments, best_path ("stream", "graph" or "rebind"; null if that was not measured). The text is
 * valid until the kernel is released. NULL if `kernel` is NULL. */
const char* kw_describe(const kw_kernel* kernel);

/* Launches the kernel on `stream` in the current context. `tensors` are the device pointers in the
 * operation's order. `scalars` follow them; missing ones take their defaults, and `scalars` may be
 * NULL if there are none. `workspace` is device memory of kw_workspace_bytes() that belongs to the
 * launch until it has ended. NULL: the launch takes the memory that it needs from a memory pool, in
 * the order of the stream, and returns it. A graph that is captured from such a launch holds the
 * memory itself. */
int kw_launch(const kw_kernel* kernel, void* stream, const void* const* tensors,
              size_t tensor_count, const double* scalars, size_t scalar_count, void* workspace);

/* Does the same as kw_launch, but first it asks the driver whether the GPU can reach all of the
 * memory, and copies lengths, offsets, tokens and page tables to the host and checks them, for
 * which it waits for the stream. This is for debugging. */
int kw_launch_checked(const kw_kernel* kernel, void* stream, const void* const* tensors,
                      size_t tensor_count, const double* scalars, size_t scalar_count,
                      void* workspace);

/* Makes a CUDA graph of the kernel with these arguments, in the current context, with a workspace
 * of its own. Launching it costs the host about a third of a kw_launch. It stays valid when the
 * kernel is released and the service closed. One thread uses it at a time, and its launches follow
 * each other. */
int kw_bake(const kw_kernel* kernel, const void* const* tensors, size_t tensor_count,
            const double* scalars, size_t scalar_count, kw_baked** baked);

/* Launches the graph on `stream`, which must not be in a capture. */
int kw_launch_baked(kw_baked* baked, void* stream);

/* Sets other pointers and scalars for the launches from now on. Up to four sets that come back stay
 * ready, so alternating between them costs no driver call. */
int kw_rebind(kw_baked* baked, const void* const* tensors, size_t tensor_count,
              const double* scalars, size_t scalar_count);

/* Adds the launch, with its present arguments, to the capture that `stream` is in. Destroy the
 * captured graph before the baked launch is released. */
int kw_add_to_capture(const kw_baked* baked, void* stream);

/* Releases a baked launch. Call it when its last launch has finished. */
void kw_release_baked(kw_baked* baked);

/* One argument of a kernel in a chain. */
typedef enum kw_chain_arg_kind {
  KW_POINTER,   /* a device pointer that stays */
  KW_SCALAR,    /* a scalar that stays */
  KW_PARAMETER, /* a pointer of the caller's, from kw_chain_parameter */
  KW_BUFFER     /* memory of the chain's own, from kw_chain_buffer */
} kw_chain_arg_kind;

/* One argument. All bytes that its kind does not use are zero. Arguments are passed as an array, so
 * the size of this struct never changes. */
typedef struct kw_chain_arg {
  int kind; /* a kw_chain_arg_kind */
  const void* pointer;
  double scalar;
  size_t slot;
  long long offset_bytes; /* added to the slot's address */
} kw_chain_arg;

/* A chain is kernels that follow each other, with the wiring of their arguments, as one object.
 * Parameters, buffers and kernels are added to a builder in order. kw_chain_build makes the chain,
 * which is bound to the current context. It stays valid when kernels are released and the service
 * is closed. kw_chain_end releases the builder. */
int kw_chain_begin(kw_chain_builder** builder);
int kw_chain_parameter(kw_chain_builder* builder, const void* address, size_t* slot);
int kw_chain_buffer(kw_chain_builder* builder, size_t bytes, size_t* slot);
int kw_chain_add(kw_chain_builder* builder, const kw_kernel* kernel, const kw_chain_arg* arguments,
                 size_t count);
/* Adds the next kernel as a choice among several of one problem. The chain begins with the first of
 * them, and kw_tune_chain chooses. */
int kw_chain_add_alternatives(kw_chain_builder* builder, kw_kernel* const* kernels,
                              size_t kernel_count, const kw_chain_arg* arguments, size_t count);
int kw_chain_build(const kw_chain_builder* builder, kw_chain** chain);
void kw_chain_end(kw_chain_builder* builder);

/* Launches all kernels on `stream`, along the chain's path. One thread uses a chain at a time. */
int kw_launch_chain(kw_chain* chain, void* stream);

/* Sets other addresses for all parameters, in order, from the next launch on. */
int kw_rebind_chain(kw_chain* chain, const void* const* parameters, size_t count);

/* Adds the kernels to the capture that `stream` is in. */
int kw_add_chain_to_capture(const kw_chain* chain, void* stream);

/* Sets the way in which the chain is launched. It is "stream", "graph" or, if a kernel waits for
 * its predecessor itself, "programmatic_stream" or "programmatic_graph". A new chain is launched as
 * a "graph". */
int kw_set_chain_path(kw_chain* chain, const char* path);

/* Finds the kernels that make the chain fastest, if it has alternatives, and those that gain by an
 * early start. Then it times every path on `stream` and stays with the path of the shortest period.
 * If paths tie, it takes the one that costs the host least. The chain's results are overwritten.
 * Alternatives may differ in the last bits of their results. */
int kw_tune_chain(kw_chain* chain, void* stream);

/* Returns a JSON object: kernels, memory_bytes, early_kernels (the places of the kernels that start
 * early on programmatic paths), chosen (template and configuration by place), path, and every path
 * with host_us and period_us once tuned. The text is valid until the next kw_set_chain_path,
 * kw_tune_chain or kw_release_chain. NULL if `chain` is NULL. */
const char* kw_describe_chain(const kw_chain* chain);

/* Releases a chain. Call it when its last launch has finished. */
void kw_release_chain(kw_chain* chain);

/* Returns the reason of the calling thread's last failure, "" if there was none. It is valid until
 * the thread's next failing call. */
const char* kw_last_error(void);

/* Returns the kind of that failure, a kw_error; KW_OK if there was none. */
int kw_last_error_code(void);

/* Returns the version of the library that is loaded, "0.2.0". */
const char* kw_version(void);

#ifdef __cplusplus
}
#endif

#endif
