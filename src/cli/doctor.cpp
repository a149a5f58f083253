#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/host_facts.h"
#include "cli/program.h"
#include "cli/table.h"

namespace omni::cli {
namespace {

json::object to_json(const std::vector<Finding>& findings) {
  json::array checks;
  for (const Finding& finding : findings) {
    checks.push_back(json::object{{"check", finding.check},
                                  {"health", to_string(finding.health)},
                                  {"found", finding.found},
                                  {"why", finding.why},
                                  {"fix", finding.fix}});
  }
  return {{"checks", std::move(checks)}};
}

std::string describe(const std::vector<Finding>& findings, std::optional<std::size_t> width) {
  Table table(
      {{"CHECK"}, {"HEALTH"}, {"FOUND", Align::left, true}, {"WHY IT MATTERS", Align::left, true}});
  std::string fixes;
  for (const Finding& finding : findings) {
    table.add_row(
        {finding.check, std::string(to_string(finding.health)), finding.found, finding.why});
    if (!finding.fix.empty()) fixes += fmt::format("  {}: {}\n", finding.check, finding.fix);
  }
  return table.render(width) + (fixes.empty() ? "" : "\nwhat to do:\n" + fixes);
}

Result<void> doctor(Program& program) {
  const HostFacts facts = gather_host_facts(node_paths(program), program.socket, program.root);
  const std::vector<Finding> findings = judge(facts);
  CHECK(program.json ? write_json(program.console, to_json(findings))
                     : program.console.write(describe(findings, program.console.width())));
  const auto problems = std::ranges::count(findings, Health::problem, &Finding::health);
  if (problems == 0) return {};
  return Error{ErrorCode::invalid_config,
               fmt::format("{} of {} checks found a problem", problems, findings.size())};
}

}  // namespace

void add_doctor(CLI::App& app, Program& program) {
  CLI::App* command = add_command(app, "doctor", "Check what this machine gives to omni");
  add_place_flags(*command, program);
  add_json_flag(*command, program);
  command->callback([&program] { program.command = [&program] { return doctor(program); }; });
}

}  // namespace omni::cli
