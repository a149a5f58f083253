// Ordering documents by how well they fit a query, for Python handlers: of the task `rerank`, whose
// handler scores them, and of `embeddings`, whose vectors are compared here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gateway/task_adapter.h"

namespace omni::gateway {

struct RerankOptions {
  std::vector<std::string> documents;
  std::size_t top_n = 0;          // at most so many results
  bool return_documents = false;  // their texts beside the scores
};

// `query` and `documents` (texts, or dicts with `text`) become what a `rerank` handler gets, which
// is a list of strings.
Result<RerankOptions> normalise_rerank(json::object& parameters);
// The same as one list of texts to be embedded: the query, then the documents.
json::object as_embeddings(const json::object& parameters);

std::unique_ptr<TaskAdapter> rerank_adapter(AnswerIdentity identity, RerankOptions options);
// Of an `embeddings` handler's answer to as_embeddings(): the cosine similarity is the score.
std::unique_ptr<TaskAdapter> similarity_adapter(AnswerIdentity identity, RerankOptions options);

}  // namespace omni::gateway
