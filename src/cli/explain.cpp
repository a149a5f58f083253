#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cli/fields.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

std::string_view source_in_words(std::string_view source) {
  if (source == "declared") return "as model.toml says";
  if (source == "profile") return "as measured";
  if (source == "evicted") return "as before it was evicted";
  return "not known yet: it starts alone and is measured";
}

std::string memory_line(const json::object& answer) {
  const json::object& device = object_at(answer, "device");
  const auto bytes = [&device](std::string_view name) {
    return to_string(Bytes(integer_at(device, name)));
  };
  return fmt::format(
      "needs    {} ({})\ndevice   {}: {} of {} granted, {} held for a load, {} free\n",
      to_string(Bytes(integer_at(answer, "need_bytes"))),
      source_in_words(text_at(answer, "need_source")), text_at(device, "name"),
      bytes("granted_bytes"), bytes("budget_bytes"), bytes("held_bytes"), bytes("free_bytes"));
}

std::string expectation_line(const json::object& answer) {
  const double rate = number_at(answer, "requests_per_second");
  const double restart = number_at(answer, "restart_seconds");
  std::string text = "expected ";
  text += rate > 0 ? fmt::format("one request in {}", format_age(1 / rate)) : "no request";
  if (restart > 0) text += fmt::format("; to have it back takes {}", format_age(restart));
  return text + "\n";
}

std::string explanation_text(const json::object& answer) {
  std::string text =
      fmt::format("{}: {}{}\n{}\n", text_at(answer, "name"), text_at(answer, "state"),
                  flag_at(answer, "pinned") ? ", pinned" : "", text_at(answer, "sentence"));
  const std::int64_t waiting = integer_at(answer, "waiting");
  if (waiting > 0) {
    text += fmt::format("waiting  {}, the oldest for {}\n",
                        counted(static_cast<std::uint64_t>(waiting), "request"),
                        format_age(number_at(answer, "oldest_wait_seconds")));
  }
  if (text_at(answer, "need_source").empty()) return text;  // not provisioned yet
  text += memory_line(answer) + expectation_line(answer);
  const std::int64_t rank = integer_at(answer, "victim_rank");
  if (rank > 0) text += fmt::format("victim   number {} when another needs room\n", rank);
  return text;
}

asio::awaitable<Result<void>> explain(Daemon& daemon, Program& program, std::string model) {
  Request request{.target = fmt::format("/admin/models/{}/explain", percent_encode(model))};
  CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
  if (program.json) co_return write_json(program.console, answer);
  co_return program.console.write(explanation_text(answer));
}

}  // namespace

void add_explain(CLI::App& app, Program& program) {
  auto model = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "explain", "Say why a model is loaded or not, and what it costs");
  command->add_option("model", *model, "Name or alias")->required()->type_name("MODEL");
  set_client_command(*command, program, [&program, model](Daemon& daemon) {
    return explain(daemon, program, *model);
  });
}

}  // namespace omni::cli
