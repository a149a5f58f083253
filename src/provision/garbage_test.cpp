#include "provision/garbage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "provision/file_lock.h"
#include "provision/use_records.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kUsed(64, 'a');
const std::string kUnused(64, 'b');
const std::string kUsedKey(64, 'c');
const std::string kUnusedKey(64, 'd');

class GarbageTest : public ::testing::Test {
 protected:
  GarbageTest() {
    model_.name = "m";
    model_.requirements = "r.txt";
  }
  void write(const fs::path& file, std::string_view content = "x") { folder_.write(file, content); }
  void write_environment(const std::string& hash) {
    for (const char* file : {"/.complete", "/lib/a.py", ".lock", ".log"}) {
      write("environments/" + hash + file);
    }
  }
  void write_weight(const std::string& digest, const std::string& key) {
    const std::string place = "weights/sha256/" + digest.substr(0, 2) + "/" + digest;
    write(place, "weight");
    write(place + ".stat");
    write("weights/hub/" + key, digest + "\n");
    write("weights/pypi/" + key, digest + "\n");
    write("weights/pypi/" + key + ".lock");
  }
  void record(const std::string& model, const Used& used) {
    UseRecords records(state_);
    ASSERT_TRUE(make_directories(records_folder(state_)).ok());
    ASSERT_TRUE(records.commit(model, used, {}).ok());
  }
  std::vector<std::string> collect(bool dry_run = false) {
    GarbageOrder order = keep_models(state_, models_);
    order.dry_run = dry_run;
    garbage_ = collect_garbage(order);
    std::vector<std::string> paths;
    if (!garbage_.ok()) return {garbage_.error().message};
    for (const Garbage::Item& item : garbage_->removed) paths.push_back(item.path);
    return paths;
  }
  bool exists(const fs::path& path) const { return fs::exists(state_ / path); }

  TemporaryFolder folder_;
  fs::path state_ = folder_.path();
  ModelSpec model_;
  std::vector<ModelSpec> models_;
  Result<Garbage> garbage_ = Garbage();
};

TEST_F(GarbageTest, KeepsWhatTheRecordsOfConfiguredModelsName) {
  models_ = {model_};
  write_environment(kUsed);
  write_environment(kUnused);
  write_weight(kUsed, kUsedKey);
  write_weight(kUnused, kUnusedKey);
  write("weights/parts/" + kUnused + ".part", std::string(10'000, 'x'));
  write("weights/parts/" + kUnused + ".part.etag");
  write("weights/parts/git-1.part");
  write("cache/m/now/x");
  write("cache/m/before/x");
  write("cache/gone/now/x");
  write("environments/.hidden");
  write("weights/sha256/lost+found/x");
  record("m", {.versions = {"now"}, .environments = {kUsed}, .weights = {kUsed, "git-1"}});
  record("gone", {.versions = {"now"}, .environments = {kUnused}, .weights = {kUnused}});

  const auto expected =
      UnorderedElementsAre("versions/gone", "environments/" + kUnused, "weights/hub/" + kUnusedKey,
                           "weights/pypi/" + kUnusedKey, "weights/parts/" + kUnused,
                           "weights/sha256/bb/" + kUnused, "cache/gone", "cache/m/before");
  EXPECT_THAT(collect(true), expected);
  const Bytes would_free = garbage_->freed;
  EXPECT_GE(would_free, 10'000_B);
  EXPECT_TRUE(exists("environments/" + kUnused)) << "a dry run removes nothing";
  EXPECT_THAT(collect(), expected);
  EXPECT_EQ(garbage_->freed, would_free);

  for (const std::string& path :
       {"environments/" + kUsed + "/.complete", "environments/" + kUsed + ".log",
        "weights/sha256/aa/" + kUsed, "weights/sha256/aa/" + kUsed + ".stat",
        "weights/hub/" + kUsedKey, "weights/pypi/" + kUsedKey,
        std::string("weights/parts/git-1.part"), std::string("cache/m/now/x"),
        std::string("versions/m.json"), std::string("environments/.hidden"),
        std::string("weights/sha256/lost+found/x")}) {
    EXPECT_TRUE(exists(path)) << path;
  }
  for (const std::string& path :
       {"environments/" + kUnused, "environments/" + kUnused + ".lock",
        "weights/sha256/bb/" + kUnused, "weights/parts/" + kUnused + ".part.etag",
        std::string("cache/gone"), std::string("versions/gone.json")}) {
    EXPECT_FALSE(exists(path)) << path;
  }
  EXPECT_THAT(collect(), IsEmpty()) << "nothing is left to do";
  EXPECT_EQ(garbage_->freed, 0_B);
}

TEST_F(GarbageTest, LeavesAloneWhatIsBeingBuiltOrFetched) {
  write_environment(kUnused);
  write("weights/parts/" + kUnused + ".part");
  write("weights/parts/" + kUnused + ".lock");
  const Fd build = try_lock_file(state_ / "environments" / (kUnused + ".lock")).value();
  const Fd fetch = try_lock_file(state_ / "weights/parts" / (kUnused + ".lock")).value();
  EXPECT_THAT(collect(), IsEmpty());
  EXPECT_THAT(garbage_->busy, ElementsAre("environments/" + kUnused, "weights/parts/" + kUnused));
  EXPECT_TRUE(exists("environments/" + kUnused + "/.complete"));
}

TEST_F(GarbageTest, LeavesAloneWhatALivingDaemonHasPrepared) {
  write_environment(kUsed);
  write("cache/m/now/x");
  record("m", {.versions = {"now"}, .environments = {kUsed}});
  {
    const Fd daemon = try_lock_file(model_lock(state_, "m"), LockMode::shared).value();
    EXPECT_THAT(collect(), IsEmpty()) << "though the model is configured no more";
  }
  EXPECT_THAT(collect(), UnorderedElementsAre("versions/m", "environments/" + kUsed, "cache/m"));
}

TEST_F(GarbageTest, KeepsTheCacheOfAModelThatIsKnownByItsSpecAlone) {
  model_.requirements.clear();
  model_.weights = {{.name = "w", .source = "https://h/w", .sha256 = kUsed}};
  models_ = {model_};
  write("cache/m/now/x");
  write("weights/parts/" + kUsed + ".part");
  EXPECT_THAT(collect(), IsEmpty());
}

TEST_F(GarbageTest, AModelThatUsesSomethingMustHaveARecord) {
  ModelSpec plain;
  plain.name = "plain";
  plain.weights = {{.name = "w", .source = "file:w"}};
  ModelSpec fetching;
  fetching.name = "fetching";
  fetching.weights = {{.name = "w", .source = "hf:o/n/w"}};
  const std::vector<ModelSpec> models{model_, plain, fetching};
  EXPECT_THAT(unprepared(state_, models), ElementsAre("m", "fetching"));
  record("m", {});
  EXPECT_THAT(unprepared(state_, models), ElementsAre("fetching"));
}

TEST_F(GarbageTest, ARecordThatCannotBeReadStopsIt) {
  models_ = {model_};
  write_environment(kUsed);
  write("versions/m.json", "{");
  EXPECT_THAT(collect(), ElementsAre(HasSubstr("versions/m.json: it is no JSON object")));
  EXPECT_TRUE(exists("environments/" + kUsed));
}

TEST_F(GarbageTest, AStateFolderThatIsNotThereHasNone) {
  state_ = folder_.path() / "none";
  EXPECT_THAT(collect(), IsEmpty());
  EXPECT_FALSE(fs::exists(state_));
}

TEST_F(GarbageTest, AFileWithAnotherNameFreesNothing) {
  write_weight(kUnused, kUnusedKey);
  const fs::path content = state_ / "weights/sha256/bb" / kUnused;
  fs::create_hard_link(content, state_ / "elsewhere");
  collect();
  for (const Garbage::Item& item : garbage_->removed) {
    if (item.path == "weights/sha256/bb/" + kUnused) EXPECT_LE(item.size, 4096_B) << "its note";
  }
  EXPECT_FALSE(fs::exists(content));
}

TEST(UseRecords, KeepWhatAnEarlierDaemonPreparedUntilThisOneHas) {
  const TemporaryFolder folder;
  ASSERT_TRUE(make_directories(records_folder(folder.path())).ok());
  const fs::path file = record_file(folder.path(), "m");
  ASSERT_TRUE(UseRecords(folder.path()).commit("m", {.environments = {"old"}}, {}).ok());
  UseRecords records(folder.path());
  ASSERT_TRUE(records.claim("m", {.environments = {"new"}}).ok());
  EXPECT_THAT(read_record(file)->environments, UnorderedElementsAre("old", "new"))
      << "it may fail yet";
  ASSERT_TRUE(records.commit("m", {.environments = {"new"}}, {}).ok());
  EXPECT_THAT(read_record(file)->environments, UnorderedElementsAre("new"));
  ASSERT_TRUE(records.commit("m", {.environments = {"newer"}}, {}).ok());
  EXPECT_THAT(read_record(file)->environments, UnorderedElementsAre("new", "newer"))
      << "an instance of the last version may still run";
}

TEST(UseRecords, SayWhenSomethingIsGone) {
  const TemporaryFolder folder;
  ASSERT_TRUE(make_directories(records_folder(folder.path())).ok());
  UseRecords records(folder.path());
  EXPECT_TRUE(records.commit("m", {}, {folder.path()}).value());
  EXPECT_FALSE(records.commit("m", {}, {folder.path(), folder.path() / "gone"}).value());
}

TEST(FileLock, ALockFileThatWasRemovedIsNotTaken) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  Fd first = try_lock_file(file).value();
  EXPECT_FALSE(try_lock_file(file).value());
  EXPECT_FALSE(try_lock_file(file, LockMode::shared).value());
  fs::remove(file);
  EXPECT_TRUE(try_lock_file(file).value()) << "a new one of that name";
}

}  // namespace
}  // namespace omni
