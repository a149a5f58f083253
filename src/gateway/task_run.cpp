#include "gateway/task_run.h"

#include <fmt/format.h>

#include "gateway/base64.h"
#include "gateway/json_body.h"

namespace omni::gateway {
namespace {

using engine::Item;
using engine::ItemKind;

class RunAdapter : public TaskAdapter {
 public:
  explicit RunAdapter(bool events) : events_(events) {}

  Result<Head> begin(const engine::ResponseStart& start, FirstKind first) override {
    streaming_ = start.streaming;
    kind_ = first;
    if (events_) return Head{"text/event-stream; charset=utf-8", true, true};
    std::string type = start.content_type;
    if (type.empty()) type = default_type();
    return Head{std::move(type), streaming_, false};
  }

  Result<std::string> item(Item item) override {
    if (events_) return event_of(item);
    if (item.kind != kind_.value_or(item.kind)) {
      return unfit_answer("an iterator must yield items of one kind");
    }
    if (item.kind == ItemKind::json) {
      CHECK(find_usage(item));
      if (streaming_) item.data.insert(0, items_++ == 0 ? "[" : ",");
    }
    return std::move(item.data);
  }

  Result<std::string> end(const json::object& trailer) override {
    note_usage(trailer);
    if (events_) return std::string("data: [DONE]\n\n");
    if (streaming_ && kind_ == ItemKind::json) return std::string(items_ == 0 ? "[]" : "]");
    return std::string();
  }

 private:
  Result<void> find_usage(const Item& item) {
    if (!item.data.starts_with('{') || item.data.find("\"usage\"") == std::string::npos) return {};
    TRY(json::object answer, object_of(item));
    note_usage(answer);
    return {};
  }

  std::string default_type() const {
    switch (kind_.value_or(ItemKind::json)) {
      case ItemKind::json:
        return "application/json";
      case ItemKind::text:
        return "text/plain; charset=utf-8";
      case ItemKind::bytes:
        break;
    }
    return "application/octet-stream";
  }

  static Result<std::string> event_of(const Item& item) {
    switch (item.kind) {
      case ItemKind::json:
        return event(item.data);
      case ItemKind::text:
        return event(fmt::format(R"({{"response":{}}})", quote(item.data)));
      case ItemKind::bytes:
        break;
    }
    return event(fmt::format(R"({{"bytes":"{}"}})", base64(item.data)));
  }

  bool events_;
  bool streaming_ = false;
  std::optional<ItemKind> kind_;
  std::size_t items_ = 0;
};

}  // namespace

std::unique_ptr<TaskAdapter> run_adapter(bool events) {
  return std::make_unique<RunAdapter>(events);
}

}  // namespace omni::gateway
