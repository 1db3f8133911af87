#include "tandem/storage/json_log.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"
#include "tests/support/text_of.h"

namespace tandem::storage {
namespace {

using test::slurp;
using test::spill;
using test::TemporaryFolder;
using test::text_of;

TEST(JsonLog, OneObjectALineInTheGivenOrder) {
  EXPECT_EQ(json_line({{"event", "step"}, {"step", int64_t{3}}, {"loss", 0.5}, {"last", false}}),
            R"({"event":"step","step":3,"loss":0.5,"last":false})");
  EXPECT_EQ(json_line({}), "{}");
  EXPECT_EQ(json_line({{"a\n\"", "x\ny"}}), R"({"a\n\"":"x\ny"})");
  EXPECT_EQ(json_line({{"nan", std::nan("")}, {"inf", INFINITY}}), R"({"nan":null,"inf":null})");
  EXPECT_EQ(json_line({{"bad", "\xff"}}), "{\"bad\":\"\xEF\xBF\xBD\"}");
}

TEST(JsonLog, LinesAreThereAtOnceAndAppended) {
  const TemporaryFolder folder;
  JsonLog log(folder / "log.jsonl", false);
  log.write({{"step", int64_t{1}}});
  EXPECT_EQ(slurp(folder / "log.jsonl"), "{\"step\":1}\n");
  JsonLog(folder / "log.jsonl", true).write({{"step", int64_t{2}}});
  EXPECT_EQ(slurp(folder / "log.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
  JsonLog(folder / "log.jsonl", false).write({{"step", int64_t{3}}});
  EXPECT_EQ(slurp(folder / "log.jsonl"), "{\"step\":3}\n");
}

TEST(JsonLog, AppendsOnANewLineAfterATornOne) {
  const TemporaryFolder folder;
  spill(folder / "log.jsonl", "{\"step\":1}\n{\"st");
  JsonLog(folder / "log.jsonl", true).write({{"step", int64_t{2}}});
  EXPECT_EQ(slurp(folder / "log.jsonl"), "{\"step\":1}\n{\"st\n{\"step\":2}\n");
}

TEST(JsonLog, AFullDiskCostsWholeLinesAndOneWarning) {
  const TemporaryFolder folder;
  JsonLog log(folder / "log.jsonl", false);
  testing::internal::CaptureStderr();
  {
    const DiskLimit full(3005);  // the captured warning counts too
    for (int64_t line = 0; line < 99; ++line) log.write({{"text", std::string(89, 'x')}});
  }
  log.write({{"step", int64_t{9}}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: the log has gaps: cannot write '" + (folder / "log.jsonl").string() + "': File too large\n");
  const auto text = slurp(folder / "log.jsonl");
  EXPECT_EQ(text.size(), 30U * 101U + 11U - 101U);
  EXPECT_TRUE(text.ends_with("xx\"}\n{\"step\":9}\n"));
}

TEST(JsonLog, ADeviceThatIsFullIsSurvived) {
  testing::internal::CaptureStderr();
  JsonLog log("/dev/full", true);
  log.write({{"step", int64_t{1}}});
  log.write({{"step", int64_t{2}}});
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("warning: the log has gaps: cannot write '/dev/full': No space left on device")) << text;
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(JsonLog, AFileThatCannotBeIsNamed) {
  EXPECT_EQ(text_of<IoError>([] { JsonLog log("/none/log.jsonl", false); }),
            "cannot write '/none/log.jsonl': No such file or directory");
}

}  // namespace
}  // namespace tandem::storage
