/* Checks that say where they failed, and a small batch. */
#ifndef COUNTERWEIGHT_TESTS_EMBEDDED_CHECK_H_
#define COUNTERWEIGHT_TESTS_EMBEDDED_CHECK_H_

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counterweight.h"

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, \
              #condition, cw_last_error()->message);                     \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

/* Two sequences of three positions; ratios 1, 4, -, 1/2, 1, 2. */
static const float kRollout[6] = {-1.0f, -2.0f, -1.0f, -1.0f, -3.0f, -2.0f};
static const float kLogRatio[6] = {0.0f,         1.38629436f, 9.0f,
                                   -0.69314718f, 0.0f,        0.69314718f};
static const uint8_t kMask[6] = {1, 1, 0, 1, 1, 1};

typedef struct {
  float old_log_probs[6];
  cw_bytes tensors[3];
  cw_request request;
} Batch;

static const char kTokenTis[] =
    "{\"requestId\": \"a\", \"layout\": {\"padded\": {\"numSequences\": 2, "
    "\"length\": 3}}, \"tensors\": ["
    "{\"role\": \"TENSOR_ROLE_ROLLOUT_LOG_PROBS\", \"dtype\": \"D_TYPE_F32\"},"
    "{\"role\": \"TENSOR_ROLE_OLD_LOG_PROBS\", \"dtype\": \"D_TYPE_F32\"},"
    "{\"role\": \"TENSOR_ROLE_RESPONSE_MASK\", \"dtype\": \"D_TYPE_U8\"}],"
    "\"method\": {\"preset\": {\"name\": \"token_tis\"}}}";

static void MakeBatch(Batch* batch) {
  int i;
  memset(batch, 0, sizeof(*batch));
  for (i = 0; i < 6; ++i) {
    batch->old_log_probs[i] = kRollout[i] + kLogRatio[i];
  }
  batch->tensors[0].data = kRollout;
  batch->tensors[0].size = sizeof(kRollout);
  batch->tensors[1].data = batch->old_log_probs;
  batch->tensors[1].size = sizeof(batch->old_log_probs);
  batch->tensors[2].data = kMask;
  batch->tensors[2].size = sizeof(kMask);
  batch->request.struct_size = sizeof(batch->request);
  batch->request.format = CW_JSON;
  batch->request.message.data = kTokenTis;
  batch->request.message.size = sizeof(kTokenTis) - 1;
  batch->request.tensors = batch->tensors;
  batch->request.num_tensors = 3;
}

/* True if `text` is somewhere in the bytes. */
static inline int Has(cw_bytes bytes, const char* text) {
  const size_t size = strlen(text);
  size_t i;
  for (i = 0; i + size <= bytes.size; ++i) {
    if (memcmp((const char*)bytes.data + i, text, size) == 0) return 1;
  }
  return 0;
}

/* That the answer's first two tensors are the weights and the mask of it. */
static inline void CheckAnswer(const cw_answer* answer) {
  static const float kWeights[6] = {1.0f, 2.0f, 0.0f, 0.5f, 1.0f, 2.0f};
  const float* weights;
  int i;
  CHECK(answer->num_tensors == 2);
  CHECK(answer->tensors[0].size == sizeof(kWeights));
  CHECK(answer->tensors[1].size == sizeof(kMask));
  weights = (const float*)answer->tensors[0].data;
  for (i = 0; i < 6; ++i) CHECK(fabsf(weights[i] - kWeights[i]) < 1e-6f);
  CHECK(memcmp(answer->tensors[1].data, kMask, sizeof(kMask)) == 0);
}

#endif /* COUNTERWEIGHT_TESTS_EMBEDDED_CHECK_H_ */
