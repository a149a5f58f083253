#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

Table instance_table(const json::array& instances, bool pss) {
  std::vector<Column> columns{
      {"ID", Align::right},     {"MODEL", Align::left, true}, {"STATE"},
      {"FOR", Align::right},    {"MEMORY", Align::right},     {"GRANT", Align::right},
      {"ACTIVE", Align::right}, {"SERVED", Align::right},     {"IDLE", Align::right},
      {"PID", Align::right}};
  if (pss) columns.push_back({"PSS", Align::right});
  Table table(std::move(columns));
  for (const json::value& value : instances) {
    const json::object& instance = as_object(value);
    const std::int64_t active = integer_at(instance, "in_flight");
    std::vector<std::string> cells{
        text_at(instance, "id"),
        text_at(instance, "model"),
        text_at(instance, "state"),
        format_age(number_at(instance, "seconds_in_state")),
        format_bytes(integer_at(instance, "high_water_bytes")),
        format_bytes(integer_at(instance, "grant_bytes")),
        std::to_string(active),
        std::to_string(integer_at(instance, "served")),
        active > 0 ? "-" : format_age(number_at(instance, "seconds_idle")),
        std::to_string(integer_at(instance, "pid"))};
    if (pss) cells.push_back(format_bytes(integer_at(instance, "pss_bytes")));
    table.add_row(std::move(cells));
  }
  return table;
}

asio::awaitable<Result<void>> ps(Daemon& daemon, Program& program, bool pss) {
  Request request{.target = pss ? "/admin/instances?pss=1" : "/admin/instances"};
  CO_TRY(const json::object answer, co_await daemon.ask(std::move(request)));
  Console& console = program.console;
  if (program.json) co_return write_json(console, answer);
  co_return console.write(
      instance_table(array_at(answer, "instances"), pss).render(console.width()));
}

}  // namespace

void add_ps(CLI::App& app, Program& program) {
  auto pss = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "ps", "List the instances that run");
  command->add_flag("--pss", *pss, "Measure each instance's share of memory, which takes longer");
  set_client_command(*command, program,
                     [&program, pss](Daemon& daemon) { return ps(daemon, program, *pss); });
}

}  // namespace omni::cli
