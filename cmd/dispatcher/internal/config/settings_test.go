package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Config ShowCommand `cmd:""`
	}
	c.Config.Flags = AllFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }

// loadWith reads the settings as serve does with these arguments.
func loadWith(t *testing.T, env []string, args ...string) (*loaded, error) {
	t.Helper()
	return LoadArgs(&program.Terminal(env...).Console, args...)
}

func TestTranscripts(t *testing.T) { program.Transcripts(t) }

// TestEachSettingIsInTheReference writes the tables of docs/reference/settings.md.
func TestEachSettingIsInTheReference(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	group := ""
	for _, s := range catalogue() {
		if s.group != group {
			group = s.group
			fmt.Fprintf(&page, "\n### %s\n\n| key | default | meaning |\n|---|---|---|\n", group)
		}
		def, help := "", s.help
		if s.def != "" {
			def = "`" + s.def + "`"
		}
		if s.secret != "" {
			help += " Secret."
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", s.key, def, strings.ReplaceAll(help, "|", `\|`))
	}
	transcript.Block(t, "../../../../docs/reference/settings.md", "settings", page.String()+"\n")
}

// TestEverySettingHasThreeSpellings sets each setting by flag, variable and file.
func TestEverySettingHasThreeSpellings(t *testing.T) {
	t.Parallel()
	written := map[string]string{}
	for _, line := range transcript.Inputs(t, "testdata/lines/spellings.txt") {
		key, value, _ := strings.Cut(line, " ")
		written[key] = value
	}
	for _, s := range catalogue() {
		value, ok := written[s.key]
		if !ok {
			if s.key != "egress_proxy" && s.group != "Sign-in" {
				t.Errorf("%s has no line in spellings.txt", s.key)
			}
			continue
		}
		flags, err := loadWith(t, nil, "--"+s.flag()+"="+value)
		if err != nil {
			t.Errorf("flag %s: %s", s.flag(), err)
		}
		env, err := loadWith(t, []string{s.env() + "=" + value})
		if err != nil {
			t.Errorf("variable %s: %s", s.env(), err)
		}
		yaml := value
		if s.isList() {
			yaml = "\n  - " + strings.ReplaceAll(value, ",", "\n  - ")
		}
		file, err := loadWith(t, nil, "--config", cmdtest.WriteFile(t, "d.yaml", s.key+": "+yaml+"\n"))
		if err != nil {
			t.Errorf("key %s: %s", s.key, err)
		}
		if diff := gocmp.Diff(flags.Settings, env.Settings); diff != "" {
			t.Errorf("flag and variable of %s differ: %s", s.key, diff)
		}
		if diff := gocmp.Diff(flags.Settings, file.Settings); diff != "" {
			t.Errorf("flag and key of %s differ: %s", s.key, diff)
		}
		if def, err := loadWith(t, nil); err != nil ||
			s.key != "horizon" && gocmp.Diff(def.Settings, flags.Settings) == "" {
			t.Errorf("%s has no effect (%v)", s.key, err)
		}
	}
}

// TestSignInSettings sets the settings of the sign-in, which need each other, by flag, variable and file. A
// file holds the groups as a list.
func TestSignInSettings(t *testing.T) {
	t.Parallel()
	var flags, variables []string
	file := ""
	for _, s := range [][3]string{
		{"public_url", "https://dispatcher.example"}, {"oidc_issuer", "https://login.example/realms/shop"},
		{"oidc_client_id", "dispatcher"}, {"oidc_client_secret", "a secret"}, {"oidc_groups_claim", "roles"},
		{"oidc_groups", `[{"group":"payments","project":"default","scopes":["operate","send"]}]`, `
  - group: payments
    project: default
    scopes: [operate, send]`},
	} {
		flags = append(flags, "--"+strings.ReplaceAll(s[0], "_", "-")+"="+s[1])
		variables = append(variables, EnvPrefix+strings.ToUpper(s[0])+"="+s[1])
		file += s[0] + ": " + cmp.Or(s[2], s[1]) + "\n"
	}
	byFlag, err := loadWith(t, nil, flags...)
	if err != nil {
		t.Fatal(err)
	}
	byVariable, err := loadWith(t, variables)
	if err != nil {
		t.Fatal(err)
	}
	byFile, err := loadWith(t, nil, "--config", cmdtest.WriteFile(t, "d.yaml", file))
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(byFlag.Settings, byVariable.Settings); diff != "" {
		t.Errorf("flags and variables differ: %s", diff)
	}
	if diff := gocmp.Diff(byFlag.Settings, byFile.Settings); diff != "" {
		t.Errorf("flags and file differ: %s", diff)
	}
	if s := byFlag.OIDCClientSecret; s != "a secret" || strings.Contains(byFlag.Scrub("with "+s), s) {
		t.Errorf("the secret is %q", s)
	}
}

// TestAcceptedSettings loads the variables and flags of each line of accepted.txt.
func TestAcceptedSettings(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/lines/accepted.txt", func(line string) string {
		words := strings.Fields(line)
		flags := slices.IndexFunc(append(words, "--"), func(word string) bool {
			return strings.HasPrefix(word, "--")
		})
		if _, err := loadWith(t, words[:flags], words[flags:]...); err != nil {
			return err.Error()
		}
		return "accepted"
	})
}

func TestSecretFileLosesOneNewline(t *testing.T) {
	t.Parallel()
	const want = "abcdefghijklmnopqrstuvwxyz"
	for _, content := range []string{want, want + "\n", want + "\r\n"} {
		l, err := loadWith(t, []string{"DISPATCHER_ADMIN_KEY_FILE=" + cmdtest.WriteFile(t, "key", content)})
		if err != nil || l.AdminKey != want {
			t.Errorf("%q was read as %q (%v)", content, l.AdminKey, err)
		}
	}
}

func TestMaskURL(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/lines/mask.txt", maskURL)
}

func FuzzMaskURLNeverShowsThePassword(f *testing.F) {
	for _, seed := range []string{"p", "p@ss", "p/w", "p?w", "p#w", "a@b?c", "a:b", "%40", "päss"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, password string) {
		password = "hide" + password + "hide"
		if got := maskURL("postgres://user:" + password + "@host/name"); strings.Contains(got, "hide") {
			t.Errorf("password %q leaks: %q", password, got)
		}
	})
}

func TestScrub(t *testing.T) {
	t.Parallel()
	s := &Settings{DatabaseURL: "postgres://u:hidden-password@h/d", RedisURL: "redis://:hidden-redis@h",
		AdminKey: "hidden-admin", MasterKey: []string{cmdtest.SomeKey('h')}}
	got := s.Scrub("dial postgres://u:hidden-password@h/d: password hidden-password, " + s.RedisURL +
		" with hidden-admin and " + cmdtest.SomeKey('h'))
	if strings.Contains(got, "hidden") || strings.Contains(got, cmdtest.SomeKey('h')) {
		t.Errorf("a secret leaks: %q", got)
	}
	if !strings.Contains(got, "postgres://u:***@h/d") {
		t.Errorf("the URL is masked completely: %q", got)
	}
}
