// How one task looks to a handler and to the clients of one dialect: docs/contracts/tasks.md. Pure;
// relay_python.h moves the bytes.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/model_channel.h"
#include "gateway/sse.h"

namespace omni::gateway {

namespace json = boost::json;

// Turns the items of a handler's answer into the body a client gets.
class TaskAdapter {
 public:
  struct Head {
    std::string content_type;
    // The body goes out as it comes; else it is collected, so that a late error keeps its status.
    bool streams = false;
    bool events = false;  // it is an SSE stream
  };

  virtual ~TaskAdapter() = default;
  using FirstKind = std::optional<engine::ItemKind>;
  // Called once the first item is there, or an answer without items has ended.
  virtual Result<Head> begin(const engine::ResponseStart& start, FirstKind first) = 0;
  // The part of the body that this item gives; may be empty.
  virtual Result<std::string> item(engine::Item item) = 0;
  virtual Result<std::string> end(const json::object& trailer) = 0;

  const std::optional<Usage>& usage() const { return usage_; }

 protected:
  // {"usage": {...}} of a trailer or a handler's dict, noted for the metrics and completed for the
  // client; null without one.
  const json::object* note_usage(const json::object& from);

 private:
  std::optional<Usage> usage_;
  json::object told_;
};

// For tasks whose handler gives one dict, and whose clients get one object with its usage.
class DictAdapter : public TaskAdapter {
 public:
  Result<Head> begin(const engine::ResponseStart& start, FirstKind first) override;
  Result<std::string> item(engine::Item item) override;
  Result<std::string> end(const json::object& trailer) override;

 private:
  // Of what the handler gave, or of an empty object; may take what it needs out of it, but usage.
  virtual Result<json::object> answer(json::object& given) const = 0;

  std::optional<json::object> given_;
};

// What the adapters of one answer say of themselves.
struct AnswerIdentity {
  std::string id;            // request id
  std::string model;         // as the client named it
  std::int64_t created = 0;  // Unix seconds
};

// A handler gave what its task does not allow.
Error unfit_answer(std::string_view what);
// The handler's JSON item as an object.
Result<json::object> object_of(const engine::Item& item);
// The handler's item as text: a text item, or bytes that are UTF-8.
Result<std::string> text_of(engine::Item item);

}  // namespace omni::gateway
