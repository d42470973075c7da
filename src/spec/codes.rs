//! The stable codes of all faults, each with the text of `orchestrate validate --explain`.
//!
//! A code is never given a second meaning and never renumbered; one that falls out of use stays reserved.

use std::fmt;

use serde::{Serialize, Serializer};

use super::diagnostic::Severity;

macro_rules! codes {
    ($($name:ident = $severity:ident $word:literal $title:literal $explanation:literal;)+) => {
        /// What kind of fault a diagnostic is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $title] $name,)+ }

        impl Code {
            /// All of them, errors first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code as people type it: `E0007`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// The kind of fault in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What it means, why it is one, and how to mend it: a few paragraphs of Markdown.
            pub fn explanation(self) -> &'static str {
                match self { $(Self::$name => $explanation,)+ }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)+ }
            }
        }
    };
}

codes! {
    TooLarge = Error "E0001" "the file is too large"
"A file of more than 64 MiB, or of more than 16 million values, is not read: at that size something other than people or planners
wrote it.

Move long prompts into files of the repository and let the prompt name them.";

    Empty = Error "E0002" "the file is empty"
"Nothing but white space. While a plan runs this is taken for a writer that has not finished: the last good content stands
and the file is read again.

The smallest plan is `{\"tasks\": []}`; `orchestrate init` writes one with an example.";

    NotUtf8 = Error "E0003" "the file is not UTF-8"
"JSON is UTF-8. An editor saved the file in another encoding, or binary data got into it.

Save it as UTF-8 (with or without a byte order mark); `iconv -f latin1 -t utf-8` converts an old encoding.";

    CutOff = Error "E0004" "the file ends too early"
"A bracket or a text is still open where the file ends: a copy that broke off, a disk that was full, or a writer that has not
finished. While a plan runs the last good content stands and the file is read again.";

    ConflictMarkers = Error "E0005" "the file holds conflict markers"
"`git` left both versions of some lines between `<<<<<<<`, `=======` and `>>>>>>>`.

Keep one of the two versions, or both tasks one after the other, and delete the three marker lines. The status fields need no care:
whichever version you keep, they are repaired.";

    ControlCharacter = Error "E0006" "a control character"
"A character below U+0020 (NUL, escape, a raw tab or line end inside a text) may not stand here. In a text write it as an escape: `\\n`, `\\t`,
`\\u001b`. NUL bytes often mean that the machine lost power while the file was written.";

    Syntax = Error "E0007" "not valid JSON"
"The plan file is strict JSON: double quotes around every key and text, no comma after the last item, no comments, no `NaN`, no single quotes. For
a form with comments use `agent-tasks.yaml`.";

    BadEscape = Error "E0008" "an escape that is no character"
"`\\ud800` to `\\udfff` are halves of a pair and only mean a character together: `\\ud83d\\ude00`. One half alone is refused.";

    TooDeep = Error "E0009" "brackets nested too deep"
"A plan file needs six levels; more than 64 are refused.";

    DuplicateKey = Error "E0010" "a key stands twice in one object"
"JSON readers disagree on which of the two counts; most silently take the last one, so that one of the two values is lost. Keep one.

`depends_on` is another name of `dependencies`; giving both is the same fault.";

    WrongType = Error "E0011" "a value of the wrong type"
"The field wants another kind of value, for instance a list where there is a text. Numbers and truth values stand without quotes, durations and
sizes with them: `\"retries\": 2`, `\"suspend\": true`, `\"timeout\": \"30m\"`.

`null` is the same as leaving the field out.";

    MissingField = Error "E0012" "a required field is missing"
"A plan has `tasks`; a task in a list has an `id`; a mount has `source` and `target`; a secret has `env`.";

    Version = Error "E0013" "a format version that this program does not know"
"`version` names the format of the file. This program knows version 1. A higher number means that the file was written for a newer
orchestrate: reading it as version 1 could misread what is asked, so it is refused. Update orchestrate.";

    BadId = Error "E0014" "a name that is not allowed"
"An id names a branch, a folder and a container, so it must be fit for all three: 1 to 63 characters, ASCII letters, digits, `.`, `_` and `-`,
starting with a letter or a digit; no `..`, no `.` or `.lock` at the end; not `HEAD` and none of Windows' device names (`con`, `nul`, …).

Letters that only look like ASCII (a Cyrillic `а`) are refused for the same reason. Names of agent profiles follow the same rules.";

    DuplicateId = Error "E0015" "two tasks have the same id"
"Ids are unique without regard to case: on a file system that folds case, `Auth` and `auth` would share one folder and one branch.";

    UnknownDependency = Error "E0016" "a dependency on a task that is not there"
"Every entry of `dependencies` names the `id` of a task of the same plan, in the same case. A task whose dependency is unknown could never start, or would
start too early, so the whole file is refused.";

    SelfDependency = Error "E0017" "a task depends on itself"
"It would wait for itself for ever. Remove the entry.";

    Cycle = Error "E0018" "tasks wait for each other in a circle"
"None of them could ever start. The shortest such circle is shown; remove one of its dependencies. Other circles may show up after that.";

    UnknownAgent = Error "E0019" "an agent that nobody defined"
"Built in are `claude`, `codex`, `gemini`, `opencode` and `shell`. Others are defined in the plan under `agents`:

```json
\"agents\": {\"reviewer\": {\"image\": \"example/reviewer:1\", \"command\": [\"review\", \"{{prompt_file}}\"]}}
```";

    BadDuration = Error "E0020" "not a duration"
"A duration is a text with units: `\"90s\"`, `\"30m\"`, `\"1h30m\"`, `\"2 hours\"`, or ISO 8601: `\"PT1H30M\"`. Days, weeks, months and years are
not taken (they do not always have the same length): write hours. Zero and negative ones are refused, and none is longer than a year (8760 hours).";

    BadSize = Error "E0021" "not a size"
"A size is a number of bytes or a text with a unit: `\"4GiB\"`, `\"512m\"`, `\"1.5g\"`. As with Docker every unit is a power of 1024.";

    BadNumber = Error "E0022" "a number out of range"
"Counts are whole numbers without quotes, fraction or exponent. `cpus` may have a fraction.";

    CommandIsText = Error "E0023" "a command written as one text"
"A command is a list of arguments that is run without a shell, so nothing in a prompt or a path can be taken for syntax:

```json
\"command\": [\"make\", \"test\"]
```

Where a shell is wanted, ask for it: `[\"sh\", \"-c\", \"make test && make lint\"]`.";

    EmptyCommand = Error "E0024" "a command without a program"
"The list is empty or its first word is. Leave `command` out to run the image's own.";

    BadEnvName = Error "E0025" "not a name for a variable"
"A variable's name consists of ASCII letters, digits and `_` and does not start with a digit.";

    DeniedEnv = Error "E0026" "a variable that may not be set"
"`LD_…` and `GIT_…` change how every program and every `git` in the container behaves, `PATH` hides the image's programs, and
`CLAUDE_CODE_OAUTH_TOKEN` is a secret: values in `env` stand in the plan file for all to read. Name secrets under `secrets`; they are read at launch.";

    NulInText = Error "E0027" "a text with a NUL character"
"No program can be given a NUL in an argument or a variable. Remove the `\\u0000`.";

    BadImage = Error "E0028" "not an image reference"
"An image is `[registry[:port]/]name[:tag][@sha256:digest]`, its name in lower case.";

    NoImage = Error "E0029" "no image to run in"
"The profile `shell` has no image of its own. Give the task one, or set `defaults.image`; only with `\"runtime\": \"process\"` is none needed.";

    BadNetwork = Error "E0030" "not a network"
"`\"bridge\"`, `\"none\"`, or the name of a network that you made: letters, digits, `_`, `.` and `-`. `host` and `container:…` would give up the
container's own network and are refused.";

    BadUser = Error "E0031" "not a user"
"`\"auto\"` (the repository's owner), `\"image\"` (the image's own), or numbers: `\"1000:1000\"`. Names mean different numbers in different images.";

    BadMount = Error "E0032" "not a mount"
"`source` is a path, absolute or relative to the repository; `target` is an absolute path in the container without `..`. `/`, `/project`, where the
worktree is, and `/run/secrets` are taken. Whether the source may be mounted is judged when the task is launched.";

    BadSecret = Error "E0033" "not a secret"
"`env` names the variable that the agent reads; `from_env` (default: the same name) and `from_file` say where the value is read at launch. The value itself never
stands in the plan.";

    BadPattern = Error "E0034" "not a regular expression"
"`rate_limit.pattern` is a regular expression in the syntax of Rust's `regex` crate: no look-around, no back-references. In JSON a backslash is written twice.";

    UnknownWord = Error "E0035" "a word that is not one of the choices"
"The field takes one of a few words, in lower case.";

    NoPrompt = Error "E0036" "nothing to tell the agent"
"The command hands over `{{prompt}}` or `{{prompt_file}}`, and the task has neither `prompt` nor `description`.";

    NoSlots = Error "E0037" "no task could ever run"
"`max_concurrent` is at least 1. To launch nothing for a while, set `\"suspend\": true`: running tasks go on and nothing else starts.";

    BadBase = Error "E0038" "not a git revision"
"`base` is what `git rev-parse` takes: a branch, a tag, a commit. It may not start with `-` nor hold white space or control characters.";

    IdMismatch = Error "E0039" "a task whose key and id differ"
"In an object of tasks the key is the id; an `id` inside may only repeat it.";

    YamlSyntax = Error "E0040" "not valid YAML"
"The YAML spec is YAML 1.2, one document, indented with spaces.";

    YamlFeature = Error "E0041" "a feature of YAML that is not taken"
"Tags (`!!python/…`), several documents, keys that are no plain text, `.nan` and `.inf` are refused: they mean different things to different readers.";

    YamlBudget = Error "E0042" "YAML that grows too large"
"Aliases are copied where they are used. A few lines of aliases of aliases can stand for billions of values; more than a million are refused.";

    PromptTooLong = Error "E0043" "a prompt too long for an argument"
"The kernel takes no argument of 128 KiB or more, so a command with `{{prompt}}` could not be started. Hand the prompt over with `{{prompt_file}}`, or
put it in a file of the repository and let the prompt name that.";

    UnknownField = Warning "W0001" "an unknown field"
"No such field is known here, so it asks for nothing. It is kept when the file is written.

Fields of your own are fine: start their names with `x-` or `_` and nobody asks. `$schema` is for editors.";

    UnknownStatus = Warning "W0002" "an unknown status"
"`status` is one of `pending`, `running`, `completed`, `failed`, `blocked`, `cancelled`. Any other word asks for nothing and is written over.";

    RepeatedDependency = Warning "W0003" "a dependency is listed twice"
"It is waited for, and merged, once.";

    UnknownTemplate = Warning "W0004" "an unknown word in double braces"
"In `command`, `{{prompt}}`, `{{prompt_file}}`, `{{task_id}}` and `{{branch}}` are replaced; everything else is handed over as it stands.";

    FilesDiffer = Warning "W0005" "the two files disagree"
"The plan file and the YAML spec give different values. The YAML's stands. Remove the other one, so that nobody is misled by it.";

    SecretInEnv = Warning "W0006" "a variable that looks like a secret"
"Values in `env` stand in the plan file, in its history and in `docker inspect`. Name the variable under `secrets` instead: the value is read at
launch from the environment or a file, and is redacted from logs.";

    StatusInSpec = Warning "W0007" "a status in the YAML spec"
"Status is recorded in the plan file only; here it asks for nothing. To run a task again use `orchestrate retry`.";

    Dropped = Warning "W0008" "a task that the YAML spec no longer names"
"It was taken over from the YAML spec, has never been started and is no longer named there, so it is not part of the plan any more.";
}

impl Code {
    /// Reads `E0007` or `e7`.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.trim();
        let (letter, digits) = word.split_at_checked(1)?;
        let number: u16 = digits.parse().ok()?;
        Self::ALL.iter().copied().find(|code| {
            let (own, digits) = code.as_str().split_at(1);
            own.eq_ignore_ascii_case(letter) && digits.parse() == Ok(number)
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_sorted_and_fit_their_severity() {
        for (i, code) in Code::ALL.iter().enumerate() {
            let letter = if code.severity() == Severity::Error { "E" } else { "W" };
            assert!(code.as_str().starts_with(letter), "{code}");
            let first_warning = Code::ALL.iter().position(|c| c.severity() == Severity::Warning).expect("some");
            let number = if letter == "E" { i + 1 } else { i + 1 - first_warning };
            assert_eq!(code.as_str()[1..].parse::<usize>(), Ok(number), "{code}");
            assert_eq!(Code::from_word(code.as_str()), Some(*code));
        }
        assert_eq!(Code::from_word("e7"), Some(Code::Syntax));
        assert_eq!(Code::from_word("é1"), None);
        assert_eq!(Code::from_word(""), None);
    }
}
