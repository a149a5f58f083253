#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

std::string aliases_of(const json::object& model) {
  std::string text;
  for (const json::value& alias : array_at(model, "aliases")) {
    if (!alias.is_string()) continue;
    if (!text.empty()) text += ", ";
    text += alias.get_string();
  }
  return text;
}

std::string model_table(const json::array& models, std::optional<std::size_t> width) {
  Table table({{"NAME", Align::left, true},
               {"TASK", Align::left, true},
               {"STATE"},
               {"MEMORY", Align::right},
               {"LOAD", Align::right},
               {"WAITING", Align::right},
               {"ACTIVE", Align::right},
               {"REQUESTS", Align::right},
               {"ALIASES", Align::left, true}});
  std::string failures;
  for (const json::value& value : models) {
    const json::object& model = as_object(value);
    const double load = number_at(model, "load_seconds");
    const std::string name = text_at(model, "name");
    const auto known = [&model](std::string_view member) {
      const std::string text = text_at(model, member);
      return text.empty() ? "-" : text;
    };
    table.add_row({flag_at(model, "pinned") ? name + " (pinned)" : name, known("task"),
                   text_at(model, "state"), format_bytes(integer_at(model, "memory_bytes")),
                   load > 0 ? format_age(load) : "-", std::to_string(integer_at(model, "waiting")),
                   std::to_string(integer_at(model, "in_flight")),
                   std::to_string(integer_at(model, "requests")), aliases_of(model)});
    const std::string failure = text_at(model, "last_error");
    if (!failure.empty()) failures += fmt::format("\n{}: {}\n", name, failure);
  }
  return table.render(width) + failures;
}

asio::awaitable<Result<void>> models(Daemon& daemon, Program& program, bool names_only) {
  Request request{.target = "/admin/models"};
  CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
  Console& console = program.console;
  if (program.json) co_return write_json(console, answer);
  const json::array& list = array_at(answer, "models");
  if (!names_only) co_return console.write(model_table(list, console.width()));
  std::string names;
  for (const json::value& model : list) names += text_at(as_object(model), "name") + '\n';
  co_return console.write(names);
}

}  // namespace

void add_models(CLI::App& app, Program& program) {
  auto quiet = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "models", "List the models");
  command->add_flag("-q,--quiet", *quiet, "Print names alone");
  set_client_command(*command, program,
                     [&program, quiet](Daemon& daemon) { return models(daemon, program, *quiet); });
}

}  // namespace omni::cli
