#include "gateway/task_rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace omni::gateway {
namespace {

struct Scored {
  std::size_t index;
  double score;
};

Error wrong_documents() {
  return {ErrorCode::invalid_request,
          "`documents` must be a list of at least one text, or of objects with a `text`"};
}

Result<std::string> text_of_document(const json::value& given) {
  const json::value* text = &given;
  if (given.is_object()) text = given.get_object().if_contains("text");
  if (!text || !text->is_string()) return wrong_documents();
  return std::string(std::string_view(text->get_string()));
}

Result<bool> take_flag(json::object& parameters, std::string_view name) {
  const json::value* value = parameters.if_contains(name);
  if (!value) return false;
  if (!value->is_bool() && !value->is_null()) {
    return Error{ErrorCode::invalid_request, fmt::format("`{}` must be true or false", name)};
  }
  const bool set = value->is_bool() && value->get_bool();
  parameters.erase(name);
  return set;
}

Result<std::size_t> top_n_of(const json::object& parameters, std::size_t documents) {
  const json::value* value = parameters.if_contains("top_n");
  if (!value || value->is_null()) return documents;
  boost::system::error_code failure;
  const auto number = value->to_number<std::int64_t>(failure);
  if (failure || number < 1) {
    return Error{ErrorCode::invalid_request, "`top_n` must be an integer of at least 1"};
  }
  return std::min(documents, static_cast<std::size_t>(number));
}

// The best first; equal ones in the order of the documents.
json::object answer_of(const AnswerIdentity& identity, const RerankOptions& options,
                       std::vector<Scored> scored) {
  std::ranges::sort(scored, [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  if (scored.size() > options.top_n) scored.resize(options.top_n);
  json::array results;
  results.reserve(scored.size());
  for (const Scored& one : scored) {
    json::object result{{"index", one.index}, {"relevance_score", one.score}};
    if (options.return_documents) {
      result["document"] = json::object{{"text", options.documents[one.index]}};
    }
    results.push_back(std::move(result));
  }
  return {{"id", "rerank-" + identity.id},
          {"object", "list"},
          {"model", identity.model},
          {"results", std::move(results)}};
}

// What both tasks' answers have in common: scores come in, the best documents go out.
class ScoresAdapter : public DictAdapter {
 public:
  ScoresAdapter(AnswerIdentity identity, RerankOptions options)
      : identity_(std::move(identity)), options_(std::move(options)) {}

 protected:
  const RerankOptions& options() const { return options_; }

 private:
  Result<json::object> answer(json::object& given) const override {
    TRY(std::vector<Scored> scored, scores(given));
    return answer_of(identity_, options_, std::move(scored));
  }
  virtual Result<std::vector<Scored>> scores(const json::object& given) const = 0;

  AnswerIdentity identity_;
  RerankOptions options_;
};

class RerankAdapter final : public ScoresAdapter {
 public:
  using ScoresAdapter::ScoresAdapter;

 private:
  Result<std::vector<Scored>> scores(const json::object& given) const override {
    const json::value* results = given.if_contains("results");
    if (!results || !results->is_array()) return unfit_answer("a dict with `results` is needed");
    std::vector<Scored> scored;
    std::vector<bool> seen(options().documents.size());
    for (const json::value& result : results->get_array()) {
      TRY(Scored one, scored_of(result));
      if (one.index >= seen.size() || seen[one.index]) {
        return unfit_answer(fmt::format("index {} is of no document, or stands twice", one.index));
      }
      seen[one.index] = true;
      scored.push_back(one);
    }
    return scored;
  }

  static Result<Scored> scored_of(const json::value& result) {
    const json::object* object = result.if_object();
    const json::value* index = object ? object->if_contains("index") : nullptr;
    const json::value* score = object ? object->if_contains("score") : nullptr;
    boost::system::error_code no_index;
    boost::system::error_code no_score;
    if (index && score) {
      const Scored one{index->to_number<std::size_t>(no_index), score->to_number<double>(no_score)};
      if (!no_index && !no_score && std::isfinite(one.score)) return one;
    }
    return unfit_answer("a result must have an `index` and a `score`");
  }
};

class SimilarityAdapter final : public ScoresAdapter {
 public:
  using ScoresAdapter::ScoresAdapter;

 private:
  Result<std::vector<Scored>> scores(const json::object& given) const override {
    const json::value* embeddings = given.if_contains("embeddings");
    if (!embeddings || !embeddings->is_array() ||
        embeddings->get_array().size() != options().documents.size() + 1) {
      return unfit_answer("one embedding for each text is needed");
    }
    TRY(const std::vector<double> query, vector_of(embeddings->get_array()[0]));
    std::vector<Scored> scored;
    for (std::size_t i = 0; i < options().documents.size(); ++i) {
      TRY(const std::vector<double> document, vector_of(embeddings->get_array()[i + 1]));
      if (document.size() != query.size()) return unfit_answer("embeddings differ in length");
      scored.push_back({i, cosine(query, document)});
    }
    return scored;
  }

  static Result<std::vector<double>> vector_of(const json::value& given) {
    if (!given.is_array()) return unfit_answer("an embedding must be a list of numbers");
    std::vector<double> vector;
    vector.reserve(given.get_array().size());
    for (const json::value& number : given.get_array()) {
      boost::system::error_code failure;
      vector.push_back(number.to_number<double>(failure));
      if (failure) return unfit_answer("an embedding must be a list of numbers");
    }
    return vector;
  }

  static double cosine(const std::vector<double>& a, const std::vector<double>& b) {
    double product = 0;
    double length_a = 0;
    double length_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      product += a[i] * b[i];
      length_a += a[i] * a[i];
      length_b += b[i] * b[i];
    }
    const double lengths = std::sqrt(length_a) * std::sqrt(length_b);
    return lengths > 0 ? product / lengths : 0;
  }
};

}  // namespace

Result<RerankOptions> normalise_rerank(json::object& parameters) {
  const json::value* query = parameters.if_contains("query");
  if (!query || !query->is_string()) {
    return Error{ErrorCode::invalid_request, "`query` must be a text"};
  }
  json::value* documents = parameters.if_contains("documents");
  if (!documents || !documents->is_array() || documents->get_array().empty()) {
    return wrong_documents();
  }
  RerankOptions options;
  for (json::value& document : documents->get_array()) {
    TRY(std::string text, text_of_document(document));
    document = text;
    options.documents.push_back(std::move(text));
  }
  TRY(options.top_n, top_n_of(parameters, options.documents.size()));
  parameters["top_n"] = options.top_n;
  TRY(options.return_documents, take_flag(parameters, "return_documents"));
  return options;
}

json::object as_embeddings(const json::object& parameters) {
  json::array input;
  const json::array& documents = parameters.at("documents").get_array();
  input.reserve(documents.size() + 1);
  input.push_back(parameters.at("query"));
  input.insert(input.end(), documents.begin(), documents.end());
  return {{"input", std::move(input)}};
}

std::unique_ptr<TaskAdapter> rerank_adapter(AnswerIdentity identity, RerankOptions options) {
  return std::make_unique<RerankAdapter>(std::move(identity), std::move(options));
}

std::unique_ptr<TaskAdapter> similarity_adapter(AnswerIdentity identity, RerankOptions options) {
  return std::make_unique<SimilarityAdapter>(std::move(identity), std::move(options));
}

}  // namespace omni::gateway
