#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

namespace fs = std::filesystem;

// One file that was read.
struct Checked {
  std::string file;
  std::string problem;  // a line each; empty: it is right
  std::string verdict = "valid";
};

Checked check_model(const fs::path& folder, const Result<ModelSpec>& spec) {
  return {folder / "model.toml", spec.ok() ? std::string() : spec.error().message};
}

// A broken spec does not know where it is.
fs::path folder_of(const std::string& name, const std::vector<fs::path>& roots) {
  std::error_code status;
  for (const fs::path& root : roots) {
    if (fs::exists(root / name / "model.toml", status)) return root / name;
  }
  return name;
}

void check_models(const std::vector<fs::path>& roots, std::vector<Checked>& report) {
  const Result<std::vector<ModelFolder>> folders = load_model_folders(roots);
  if (!folders.ok()) {
    report.push_back({roots.front(), folders.error().message});
    return;
  }
  for (const ModelFolder& folder : *folders) {
    report.push_back(check_model(folder_of(folder.name, roots), folder.spec));
  }
}

// omni.toml and the models that it names.
void check_node(const fs::path& file, bool must_exist, std::vector<Checked>& report) {
  const Result<NodeConfig> config = load_node_config(file, must_exist);
  std::error_code status;
  report.push_back({file, config.ok() ? std::string() : config.error().message});
  if (!fs::exists(file, status)) report.back().verdict = "not there, so the defaults hold";
  if (config.ok()) check_models(config->models, report);
}

Result<std::vector<Checked>> check_target(const Program& program, const std::string& target) {
  std::vector<Checked> report;
  if (target.empty()) {
    check_node(node_paths(program).config / "omni.toml", false, report);
    return report;
  }
  std::error_code status;
  const fs::path path = fs::absolute(target, status);
  const bool folder = fs::is_directory(path, status);
  if (!folder && !fs::exists(path, status)) {
    return Error{ErrorCode::usage, fmt::format("{} does not exist", target)};
  }
  const fs::path home = folder ? path : path.parent_path();
  const bool is_model =
      folder ? fs::exists(home / "model.toml", status) : path.filename() == "model.toml";
  if (is_model) {
    report.push_back(check_model(home, load_model_spec(home)));
  } else if (!folder) {
    check_node(path, true, report);
  } else if (fs::exists(home / "omni.toml", status)) {
    check_node(home / "omni.toml", true, report);
  } else {
    check_models({home}, report);
  }
  return report;
}

void write_lines(Console& console, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    console.write_error(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
  }
}

Result<void> print(Program& program, const std::vector<Checked>& report) {
  if (program.json) {
    json::array files;
    for (const Checked& checked : report) {
      files.push_back(json::object{{"file", checked.file},
                                   {"valid", checked.problem.empty()},
                                   {"message", checked.problem}});
    }
    return write_json(program.console, {{"files", std::move(files)}});
  }
  for (const Checked& checked : report) {
    if (checked.problem.empty()) {
      CHECK(program.console.write_line(checked.file + ": " + checked.verdict));
    } else {
      write_lines(program.console, checked.problem);
    }
  }
  return {};
}

Result<void> check(Program& program, const std::string& target) {
  TRY(const std::vector<Checked> report, check_target(program, target));
  CHECK(print(program, report));
  const auto broken = std::ranges::count_if(
      report, [](const Checked& checked) { return !checked.problem.empty(); });
  if (broken == 0) return {};
  return Error{ErrorCode::invalid_config,
               fmt::format("{} of {} files are not valid", broken, report.size())};
}

}  // namespace

void add_check(CLI::App& app, Program& program) {
  auto target = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "check", "Check omni.toml and model folders, without a daemon");
  command
      ->add_option("path", *target,
                   "omni.toml, model.toml, or a folder with either or of models; default: the "
                   "node's own")
      ->type_name("FILE");
  add_root_flag(*command, program);
  add_json_flag(*command, program);
  command->callback([&program, target] {
    program.command = [&program, target] { return check(program, *target); };
  });
}

}  // namespace omni::cli
