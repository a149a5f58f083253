#include "engine/model_stream.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/bytes.h"

namespace omni::engine {

namespace json = boost::json;
using protocol::FrameType;
using protocol::kFrameHeaderSize;

namespace {

constexpr std::uint64_t kMaxCredit = 1 << 30;  // more is not meant seriously
constexpr std::size_t kMaxErrorMessage = 8 << 10;

Error violation(std::string_view what) {
  return {ErrorCode::engine_protocol, fmt::format("the runtime sent {}", what)};
}

std::optional<json::object> parse_object(std::string_view text) {
  boost::system::error_code status;
  json::value value = json::parse(text, status);
  if (status || !value.is_object()) return std::nullopt;
  return std::move(value.as_object());
}

// A member of the type, or nothing when it is missing or null; `wrong` when it is something else.
std::optional<std::string_view> string_member(const json::object& object, std::string_view name,
                                              bool& wrong) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_string()) {
    wrong = true;
    return std::nullopt;
  }
  return std::string_view(value->get_string());
}

bool is_token(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool is_field_value(std::string_view value) {
  return std::ranges::none_of(value, [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

// Text is UTF-8. JSON is also one line, so that it can stand in an event of an event stream.
Result<void> check_text(const Item& item) {
  if (item.kind == ItemKind::bytes) return {};
  if (!simdjson::validate_utf8(item.data)) return violation("text or JSON that is not in UTF-8");
  const bool one_line =
      std::ranges::none_of(item.data, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (item.kind == ItemKind::json && !one_line) return violation("JSON with control characters");
  return {};
}

// What a runtime may say of its own failure. Anything else is the handler's failure too: a model
// does not speak for the daemon.
ErrorCode code_of(std::string_view name) {
  using enum ErrorCode;
  for (ErrorCode code : {invalid_request, body_too_large, overloaded, shutting_down, cancelled}) {
    if (error_info(code).name == name) return code;
  }
  return handler_failed;
}

}  // namespace

std::string ModelStream::encode_head(const ModelRequest& request, Duration timeout) {
  json::array files;
  for (const FilePart& part : request.files) {
    files.push_back(json::object{{"name", part.name},
                                 {"filename", part.filename},
                                 {"content_type", part.content_type},
                                 {"size", part.size}});
  }
  // The parameters may be large: they are written as they are, not copied into another object.
  std::string head = R"({"parameters":)";
  head += json::serialize(request.parameters);
  const json::object rest{
      {"id", request.id},
      {"task", to_string(request.task)},
      {"stream", request.stream},
      {"raw", request.raw},
      {"content_type", request.content_type},
      {"files", std::move(files)},
      {"timeout_ms", std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()}};
  head += ',';
  head += std::string_view(json::serialize(rest)).substr(1);
  return head;
}

ModelStream::ModelStream(std::uint64_t id, ModelRequest request, std::string head)
    : id_(id), head_(std::move(head)), body_(std::move(request.body)) {
  assert(head_.size() <= protocol::kMaxRequest && body_.size() <= protocol::kMaxRequest);
  files_.reserve(request.files.size());
  for (FilePart& part : request.files) files_.push_back(std::move(part.content));
}

bool ModelStream::has_frame() const {
  if (ended_) return false;
  if (cancelled_) return !cancel_sent_;
  if (credit_due()) return true;
  if (request_complete_) return false;
  const bool body_left = body_sent_ < body_.size();
  const bool waits_for_credit =
      head_complete_ && files_sent_ == files_.size() && body_left && credit_ <= kFrameHeaderSize;
  return !waits_for_credit;
}

OutgoingFrame ModelStream::make_frame(FrameType type, std::string_view payload,
                                      std::uint8_t flags) const {
  OutgoingFrame out;
  const auto length = static_cast<std::uint32_t>(payload.size());
  const auto head =
      protocol::encode({.length = length, .type = type, .flags = flags, .stream = id_});
  std::ranges::copy(head, out.head.begin());
  out.payload = payload;
  return out;
}

OutgoingFrame ModelStream::next_frame() {
  assert(has_frame());
  if (cancelled_) {
    cancel_sent_ = true;
    OutgoingFrame out = make_frame(FrameType::cancel, {});
    out.last = true;
    return out;
  }
  if (credit_due()) {
    std::array<char, sizeof(std::uint32_t)> amount;
    for (std::size_t i = 0; i < amount.size(); ++i) {
      amount[i] = static_cast<char>(consumed_ >> (8 * i));
    }
    window_ += std::exchange(consumed_, 0);
    OutgoingFrame out = make_frame(FrameType::credit, {amount.data(), amount.size()});
    std::memcpy(out.head.data() + kFrameHeaderSize, amount.data(), amount.size());
    out.head_size = out.head.size();
    out.payload = {};
    return out;
  }
  if (!head_complete_) {
    const auto part = std::string_view(head_).substr(head_sent_, protocol::kMaxPayload);
    head_sent_ += part.size();
    head_complete_ = head_sent_ == head_.size();
    return make_frame(FrameType::request, part, head_complete_ ? 0 : protocol::kFlagMore);
  }
  if (files_sent_ < files_.size()) {
    OutgoingFrame out = make_frame(FrameType::fd, {});
    out.fd = files_[files_sent_++].get();
    return out;
  }
  if (body_sent_ < body_.size()) {
    const std::size_t room =
        std::min<std::uint64_t>(credit_ - kFrameHeaderSize, protocol::kMaxPayload);
    const auto part = std::string_view(body_).substr(body_sent_, room);
    body_sent_ += part.size();
    credit_ -= kFrameHeaderSize + part.size();
    const std::uint8_t more = body_sent_ < body_.size() ? protocol::kFlagMore : 0;
    return make_frame(FrameType::data, part, protocol::kKindBytes | more);
  }
  request_complete_ = true;
  OutgoingFrame out = make_frame(FrameType::end, {});
  out.last = true;
  return out;
}

void ModelStream::release_request() {
  head_ = {};
  body_ = {};
  files_.clear();
  head_sent_ = files_sent_ = body_sent_ = 0;
}

Result<void> ModelStream::on_frame(const protocol::Frame& frame) {
  const auto& [header, payload] = frame;
  // Frames that crossed our CANCEL are no longer looked at; END still closes the stream.
  if (cancelled_ && header.type != FrameType::end) return {};
  switch (header.type) {
    case FrameType::response:
      return on_response(payload);
    case FrameType::data:
      return on_data(header, payload);
    case FrameType::trailer:
      return on_trailer(payload);
    case FrameType::end:
      return on_end(header, payload);
    case FrameType::credit:
      return on_credit(payload);
    default:
      return violation(
          fmt::format("a frame of type {} on a request", static_cast<unsigned>(header.type)));
  }
}

Result<void> ModelStream::on_response(std::string_view payload) {
  if (response_) return violation("RESPONSE twice");
  const auto object = parse_object(payload);
  if (!object) return violation("a RESPONSE that is not a JSON object");
  bool wrong = false;
  ResponseStart start;
  start.content_type = string_member(*object, "content_type", wrong).value_or("");
  wrong = wrong || !is_field_value(start.content_type);
  if (const json::value* status = object->if_contains("status")) {
    const std::int64_t* number = status->if_int64();
    wrong = wrong || number == nullptr || *number < 200 || *number > 599;
    if (!wrong) start.status = static_cast<int>(*number);
  }
  if (const json::value* streaming = object->if_contains("streaming")) {
    wrong = wrong || !streaming->is_bool();
    if (!wrong) start.streaming = streaming->get_bool();
  }
  if (const json::value* headers = object->if_contains("headers")) {
    wrong = wrong || !headers->is_object();
    if (wrong) return violation("a RESPONSE with a wrong member");
    for (const auto& [name, value] : headers->get_object()) {
      // An answer's header must not be able to end the header and begin another answer.
      if (!value.is_string() || !is_token(name) || !is_field_value(value.get_string())) {
        return violation("a RESPONSE with a header that is none");
      }
      start.headers.emplace_back(name, value.get_string());
    }
  }
  if (wrong) return violation("a RESPONSE with a wrong member");
  response_ = std::move(start);
  return {};
}

Result<void> ModelStream::on_data(const protocol::FrameHeader& header, std::string_view payload) {
  if (!response_) return violation("DATA before RESPONSE");
  const auto cost = static_cast<std::uint32_t>(kFrameHeaderSize + payload.size());
  if (cost > window_) return violation("more DATA than it has credit for");
  window_ -= cost;

  ItemKind kind = ItemKind::json;
  switch (header.flags & protocol::kKindMask) {
    case protocol::kKindJson:
      break;
    case protocol::kKindText:
      kind = ItemKind::text;
      break;
    case protocol::kKindBytes:
      kind = ItemKind::bytes;
      break;
    default:
      return violation("DATA of an unknown kind");
  }
  if (!partial_) {
    if (!response_->streaming && item_count_ > 0) {
      return violation("two items of an answer that is no stream");
    }
    partial_ = Received{.item = {.kind = kind, .data = {}}, .cost = 0};
  }
  Received& part = *partial_;
  if (part.item.kind != kind) return violation("an item of two kinds");
  if (part.item.data.size() + payload.size() > protocol::kMaxItem) {
    return violation(fmt::format("an item of over {}", to_string(Bytes(protocol::kMaxItem))));
  }
  part.item.data.append(payload);
  part.cost += cost;
  if ((header.flags & protocol::kFlagMore) == 0) {
    CHECK(check_text(part.item));
    items_.push_back(std::move(part));
    partial_.reset();
    ++item_count_;
  } else if (hungry_) {
    consumed_ += std::exchange(part.cost, 0);
  }
  return {};
}

Result<void> ModelStream::on_trailer(std::string_view payload) {
  if (!response_ || partial_) return violation("a TRAILER out of order");
  auto object = parse_object(payload);
  if (!object) return violation("a TRAILER that is not a JSON object");
  trailer_ = std::move(*object);
  return {};
}

Result<void> ModelStream::on_end(const protocol::FrameHeader& header, std::string_view payload) {
  if ((header.flags & protocol::kFlagError) == 0) {
    const bool whole = response_ && !partial_ && (response_->streaming || item_count_ == 1);
    if (!cancelled_ && !whole) return violation("END before the answer is whole");
    ended_ = true;
    return {};
  }
  const auto object = parse_object(payload);
  bool wrong = !object;
  std::string_view code, message, param;
  if (object) {
    code = string_member(*object, "code", wrong).value_or("");
    message = string_member(*object, "message", wrong).value_or("");
    param = string_member(*object, "param", wrong).value_or("");
  }
  if (wrong) return violation("END with an error that is not the JSON object it should be");
  ended_ = true;
  if (cancelled_) return {};
  partial_.reset();
  error_param_ = param;
  failure_ = Error{code_of(code), std::string(message.substr(0, kMaxErrorMessage))};
  // Nobody cancelled: a handler that gave up by itself has failed.
  if (failure_->code == ErrorCode::cancelled) failure_->code = ErrorCode::handler_failed;
  return {};
}

Result<void> ModelStream::on_credit(std::string_view payload) {
  if (payload.size() != sizeof(std::uint32_t)) return violation("CREDIT that is not four bytes");
  std::uint32_t amount = 0;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    amount |= static_cast<std::uint32_t>(static_cast<unsigned char>(payload[i])) << (8 * i);
  }
  credit_ += amount;
  if (credit_ > kMaxCredit) return violation("credit without end");
  return {};
}

void ModelStream::fail(Error error) {
  if (ended_) return;
  ended_ = true;
  partial_.reset();
  if (!failure_) failure_ = std::move(error);
}

void ModelStream::cancel(Error error) {
  if (cancelled_) return;
  if (!failure_) failure_ = std::move(error);
  items_.clear();
  partial_.reset();
  cancelled_ = true;
  if (head_sent_ == 0 && !head_complete_) ended_ = true;  // the runtime never heard of it
}

Item ModelStream::take_item() {
  Received received = std::move(items_.front());
  items_.pop_front();
  consumed_ += received.cost;
  return std::move(received.item);
}

void ModelStream::set_hungry(bool hungry) {
  hungry_ = hungry;
  if (hungry_ && partial_) consumed_ += std::exchange(partial_->cost, 0);
}

}  // namespace omni::engine
