package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

const sourcesFile = `relay:
  - name: pay
    dsn: mysql://relay:dsn%2Dpassword-1@db:3306/pay_{00..31}?tls=true
    poll: 50ms
    keep: 7d
  - name: stock
    dsn: postgres://relay@db2/stock?trust=parameter-2
    password_file: /keys/stock
    tail: false
`

// TestSourcesOfAFile checks that the settings file may have the sources as YAML, that a range stands for
// many, and that no output has their credentials.
func TestSourcesOfAFile(t *testing.T) {
	t.Parallel()
	l, err := loadWith(t, nil, "--config", cmdtest.WriteFile(t, "d.yaml", sourcesFile))
	if err != nil {
		t.Fatal(err)
	}
	sources, wrong := l.Sources()
	if len(wrong) > 0 || len(sources) != 33 || sources[31].Name != "pay-31" || sources[32].Tail ||
		sources[32].PasswordFile != "/keys/stock" {
		t.Fatalf("%+v, %v", sources, wrong)
	}
	var shown string
	for _, row := range l.rows() {
		if row.Setting == "relay" {
			shown = row.Value
		}
	}
	cleaned := l.Clean(errors.New("a " + sources[7].DSN + " b dsn-password-1 c dsn%2Dpassword-1")).Error()
	for _, secret := range []string{"password-1", "dsn%2Dpassword"} {
		if strings.Contains(shown+cleaned, secret) {
			t.Errorf("%s is shown: %s %s", secret, shown, cleaned)
		}
	}
	if strings.Contains(shown, "parameter-2") {
		t.Errorf("an unknown option is shown: %s", shown)
	}
	for _, visible := range []string{"mysql://relay:***@db:3306/pay_{00..31}?tls=true", `"keep":"7d"`,
		"/keys/stock"} {
		if !strings.Contains(strings.ReplaceAll(shown, `\u0026`, "&"), visible) {
			t.Errorf("shown is %s", shown)
		}
	}
}

func TestWrongSources(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "setting relay: must be a list",
		`[{"name":"pay","dsn":"postgres://u:hidden-password@/x"}]`:  "setting relay: [0].dsn must be a URL",
		`[{"name":"Pay","dsn":"postgres://u:hidden-password@h/x"}]`: "setting relay: [0].name must have 1 to 64",
		`[{"name":"pay","dsn":"postgres://h/x","pool":"1s"}]`:       "unknown member",
	} {
		_, err := loadWith(t, []string{"DISPATCHER_RELAY=" + text})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
	file := cmdtest.WriteFile(t, "relay.json", `[{"name":""}]`)
	_, err := loadWith(t, []string{"DISPATCHER_RELAY_FILE=" + file})
	if err == nil || !strings.Contains(err.Error(), "[0].name must") {
		t.Errorf("a file of the variable: %v", err)
	}
}

// TestSettingsOfARelayProcess: the file of a server is accepted, and its other settings are not checked.
func TestSettingsOfARelayProcess(t *testing.T) {
	t.Parallel()
	load := func(file string, env ...string) (*loaded, error) {
		flags := RelayFlags()
		return LoadRelay(&program.Terminal(append(env,
			"DISPATCHER_CONFIG="+cmdtest.WriteFile(t, "d.yaml", file))...).Console, &flags)
	}
	l, err := load(sourcesFile+"database_url: postgres://db/no-keys\nworkers: many\nops_listen: 127.0.0.1:9\n",
		"DISPATCHER_ADMIN_KEY_FILE=/not/here", "DISPATCHER_KEY=k")
	if err != nil {
		t.Fatal(err)
	}
	if sources, _ := l.Sources(); len(sources) != 33 || l.OpsListen != "127.0.0.1:9" {
		t.Errorf("%d sources, ops_listen %s", len(sources), l.OpsListen)
	}
	for file, want := range map[string]string{
		"workers: 1\n":                          "setting relay: is empty; name at least one outbox table",
		sourcesFile + "ops_listen: here\n":      "setting ops_listen: ",
		sourcesFile + "log_level: loud\n":       "setting log_level: ",
		"relays: []\n" + sourcesFile:            `unknown setting "relays"; did you mean relay?`,
		"relay: [{name: pay, dsn: 'mysql:'}]\n": "setting relay: [0].dsn must be a URL",
	} {
		if _, err := load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}
