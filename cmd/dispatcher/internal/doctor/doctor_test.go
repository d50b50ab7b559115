package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	var c struct {
		Doctor Command `cmd:""`
	}
	c.Doctor.Flags = config.AllFlags()
	return &c
})

func TestMain(m *testing.M) { program.RunTests(m) }

// notFound is a name server that knows no name.
func notFound(context.Context, string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", Name: probeName, IsNotFound: true}
}

// examine runs doctor with a working name server.
func examine(t *testing.T, args ...string) []diagnosis {
	t.Helper()
	s := apptest.Settings(t, args...)
	d := &doctor{s: s, lookup: notFound, timeout: queryTimeout}
	return d.examine(t.Context())
}

// want fails the test unless a check has the status and its texts contain the words.
func want(t *testing.T, list []diagnosis, check, status string, words ...string) {
	t.Helper()
	i := slices.IndexFunc(list, func(d diagnosis) bool { return d.Check == check })
	if i < 0 {
		t.Errorf("no check %q in %+v", check, list)
		return
	}
	d := list[i]
	if d.Status != status {
		t.Errorf("%s: %+v, want %s", check, d, status)
	}
	if (d.Status == statusOK) != (d.Cure == "") {
		t.Errorf("%s: there must be a cure if and only if something is wrong: %+v", check, d)
	}
	for _, word := range words {
		if !strings.Contains(d.Found+" "+d.Cure, word) {
			t.Errorf("%s does not contain %q: %+v", check, word, d)
		}
	}
}

// snapshot returns the content of every file below a directory, except the -shm files of SQLite's readers.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "-shm") {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// makeSecrets makes a server store the secrets of a lane and of an endpoint.
func makeSecrets(t *testing.T, r *apptest.Running) {
	t.Helper()
	r.Call(t, "GET", "/v1/secret?lane=x", nil, nil)
	r.Call(t, "POST", "/v1/endpoints", map[string]string{"url": "https://example.com/"}, nil)
}

func TestDoctorOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	args := []string{"--data-dir=" + data}
	first := examine(t, args...)
	want(t, first, "database", statusWarning, "does not exist", "first start")
	want(t, first, "data directory", statusWarning, "does not exist")
	want(t, first, "admin key", statusOK, "serve generates one")
	want(t, first, "master key", statusOK, "first start")
	if len(snapshot(t, dir)) != 0 {
		t.Errorf("doctor created files: %v", snapshot(t, dir))
	}

	r := apptest.Start(t, apptest.Settings(t, "--data-dir="+data))
	r.Send(t, "http://127.0.0.1:1/")
	makeSecrets(t, r)
	running := examine(t, args...)
	r.End(t)
	before := snapshot(t, dir)
	for _, list := range [][]diagnosis{running, examine(t, args...)} {
		for _, check := range []string{"database", "durability", "integrity", "migrations", "redis",
			"admin key", "dns", "data directory", "timeouts"} {
			want(t, list, check, statusOK)
		}
		want(t, list, "master key", statusOK, "decrypts all stored secrets")
	}
	if !maps.Equal(before, snapshot(t, dir)) {
		t.Error("a file was changed")
	}
	wrong := examine(t, append(args, "--master-key="+cmdtest.SomeKey('w'))...)
	want(t, wrong, "master key", statusError, "which is missing in the settings")
	if err := os.Remove(filepath.Join(data, config.MasterKeyFile)); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, args...), "master key", statusError, "restore master.key")
	if err := os.Chmod(filepath.Join(data, config.AdminKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, args...), "admin key", statusWarning, "chmod 600")
}

// TestDoctorOnSignIn: the identity provider responds, or its failure is an error.
func TestDoctorOnSignIn(t *testing.T) {
	t.Parallel()
	idp := testserver.NewIdentityProvider(t, "https://d.example/ui/sign-in/callback")
	args := []string{"--oidc-issuer=" + idp.URL, "--public-url=https://d.example/", "--oidc-client-id=d",
		`--oidc-groups=[{"group":"a","root":true}]`}
	want(t, examine(t, args...), "sign-in", statusOK, idp.URL, idp.RedirectURI)
	idp.Respond(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusBadGateway) })
	want(t, examine(t, args...), "sign-in", statusError, idp.URL, "502")
}

func TestDoctorOnInvalidFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, config.DatabaseFileName)
	for _, damaged := range []string{strings.Repeat("not a database ", 1000), "SQLite format 3\x00"} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, examine(t, "--data-dir="+dir), "database", statusError)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, "--data-dir="+dir), "migrations", statusWarning, "are not applied",
		"serve applies them")
	want(t, examine(t, "--data-dir="+dir, "--migrate=false"), "migrations", statusError,
		`run "dispatcher migrate"`)
}

// TestDoctorCommand checks exit codes, table and JSON. Neither output contains a secret.
func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	var outputs [2]string
	for i, form := range []string{"--json=false", "--json"} {
		term := program.Terminal()
		code := term.Invoke("doctor", form, "--data-dir", t.TempDir(), "--database-url",
			"postgres://u:hidden-password@127.0.0.1:1/d",
			"--admin-key", "hidden-admin-key-of-tests", "--master-key", cmdtest.SomeKey('k'))
		outputs[i] = term.Stdout.String()
		if code != console.ExitFailed || strings.Contains(outputs[i], "hidden") ||
			strings.Contains(outputs[i], cmdtest.SomeKey('k')) {
			t.Errorf("exit code %d, or the output has a secret:\n%s", code, outputs[i])
		}
	}
	cmdtest.Contains(t, outputs[0], "database", "errors: 1")
	var printed struct {
		OK     bool
		Errors int
		Checks []diagnosis
	}
	err := json.Unmarshal([]byte(outputs[1]), &printed)
	if err != nil || printed.OK || printed.Errors < 1 || len(printed.Checks) < 5 {
		t.Errorf("printed %s (%v)", outputs[1], err)
	}
	program.Terminal().Ends(t, console.ExitUsage, "doctor", "--workers", "0")
}

// TestDoctorDoesNotHang runs doctor on servers that accept connections and never respond. They become errors
// in the table after the timeout.
func TestDoctorDoesNotHang(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := apptest.Settings(t, "--database-url=postgres://u:p@"+silent.Addr().String()+"/d",
		"--redis-url=redis://"+silent.Addr().String(),
		"--admin-key=0123456789abcdef01234567", "--master-key="+cmdtest.SomeKey('m'))
	stuck := make(chan struct{})
	defer close(stuck)
	d := &doctor{s: s, timeout: 300 * time.Millisecond,
		lookup: func(context.Context, string) ([]string, error) {
			<-stuck // ignores the context
			return nil, errors.New("ended")
		}}
	began := time.Now()
	list := d.examine(t.Context())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	want(t, list, "database", statusError, "PostgreSQL cannot be used")
	want(t, list, "redis", statusError, "Redis cannot be used")
	want(t, list, "dns", statusError, "no name server responds")
	want(t, list, "master key", statusWarning, "not tested")
}

// TestChecks runs the check that a line of checks.txt names with the facts of the line.
func TestChecks(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/checks.txt", func(line string) string {
		name, words, _ := strings.Cut(line, ":")
		for _, check := range checks {
			if check.name != name {
				continue
			}
			d := check.run(given(t, name, strings.Fields(words)))
			if (d.Status == statusOK) != (d.Cure == "") {
				t.Errorf("%s: there must be a cure if and only if something is wrong: %+v", line, d)
			}
			if d.Cure == "" {
				return d.Status + ": " + d.Found
			}
			return d.Status + ": " + d.Found + "\nwhat to do: " + d.Cure
		}
		t.Errorf("there is no check %q", name)
		return ""
	})
}

// given builds the facts from the words of a line: NAME=VALUE, flags, or networks of egress_allow.
func given(t *testing.T, check string, words []string) *facts {
	t.Helper()
	values := map[string]string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		values[name] = value
	}
	f := &facts{Settings: &config.Settings{}}
	switch check {
	case "egress":
		f.EgressAllow = words
	case "dns":
		d := &doctor{lookup: func(context.Context, string) ([]string, error) {
			if len(words) == 0 {
				return nil, nil
			}
			message := strings.Join(words, " ")
			return nil, &net.DNSError{Err: message, Name: probeName, IsNotFound: message == "no such host"}
		}}
		f.dns = d.askDNS(t.Context())
	case "alert sinks":
		f.AlertSink = strings.Join(words, " ")
	case "timeouts", "data directory", "addresses":
		f.Settings = apptest.Settings(t, append(cmdtest.BothKeys(), words...)...)
	case "clocks":
		ahead, err := time.ParseDuration(values["redis"])
		if err != nil {
			t.Fatal(err)
		}
		f.sql = sqlFacts{settings: map[string]string{}, ahead: time.Millisecond}
		f.index.survey = &redisq.Survey{Servers: []redisq.Server{{ClockAhead: ahead}}}
	case "redis", "redis memory", "redis persistence", "redis cluster":
		f.RedisURL = "redis://h"
		f.index.survey = &redisq.Survey{Cluster: check == "redis cluster",
			Servers: []redisq.Server{redisServer(values)}}
	case "index":
		f.Settings = apptest.Settings(t, "--redis-url=redis://h")
		givenIndex(t, f, values)
	default:
		f.Settings = apptest.Settings(t, append(cmdtest.BothKeys(), "--database-url=postgres://h/d")...)
		givenSQL(t, f, values)
	}
	return f
}

// redisServer returns a healthy server with the given values of INFO. The word "denied" refuses INFO.
func redisServer(values map[string]string) redisq.Server {
	denied := errors.New("NOPERM this user has no permissions")
	if _, noInfo := values["denied"]; noInfo {
		return redisq.Server{InfoErr: denied}
	}
	info := map[string]string{
		"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master",
		"maxmemory_policy": "noeviction",
		"maxmemory":        "0", "used_memory": "1000", "aof_enabled": "0", "rdb_last_bgsave_status": "ok",
		"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_slots_fail": "0",
		"cluster_size": "3",
	}
	maps.Copy(info, values)
	_, saveKnown := values["save_known"]
	server := redisq.Server{
		Addr: "h:1", Info: info, ClusterInfo: info, SaveKnown: saveKnown,
		Save: strings.ReplaceAll(values["save"], ",", " "),
	}
	if values["scripts"] != "" {
		server.Scripts = denied
	}
	return server
}

func givenIndex(t *testing.T, f *facts, values map[string]string) {
	t.Helper()
	if values["sql"] != "" {
		f.sql.meta = &store.IndexMeta{}
		m, at := f.sql.meta, strings.LastIndex(values["sql"], "/")
		m.Prefix = values["sql"][at+1:]
		_, err := fmt.Sscanf(values["sql"][:at], "%d/%d/%d", &m.Generation, &m.Built, &m.Shards)
		if err != nil {
			t.Fatal(err)
		}
	}
	f.index.survey = &redisq.Survey{}
	for text := range strings.SplitSeq(values["redis"], ",") {
		generation, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		f.index.survey.Generations = append(f.index.survey.Generations, generation)
	}
	if unread := values["unread"]; unread != "" {
		known := map[string]error{"older": schedule.ErrOlder, "newer": schedule.ErrNewer,
			"NOPERM": errors.New("NOPERM")}
		f.index.survey.Unread = fmt.Errorf("read: %w", known[unread])
	}
}

func givenSQL(t *testing.T, f *facts, values map[string]string) {
	t.Helper()
	has := func(name string) bool { _, has := values[name]; return has }
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(values[name]); err == nil {
			return n
		}
		return otherwise
	}
	f.sql = sqlFacts{
		settings: values, standby: has("standby"), version: values["version"], number: number("number", 0),
		maxConns: 30, reservedConns: 3, usedConns: 20, ownConns: 1, roleConns: number("role", -1),
		databaseConns: -1,
	}
	switch {
	case has("code"):
		f.sql.err = fmt.Errorf("connect: %w", &pgconn.PgError{Code: values["code"], Message: "refused"})
	case has("refused"):
		f.sql.err = errors.New("refused")
	case has("unreadable"):
		f.sql.readErr = errors.New("permission denied")
	case has("newer"):
		known, _, err := migrations.For(f.Engine())
		if err != nil {
			t.Fatal(err)
		}
		f.sql.applied = map[int64]string{999: "of a newer program"}
		for _, m := range known {
			f.sql.applied[m.Version] = m.Hash
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	want(t, examine(t, "--workers=100000"), "open files", statusError)
	want(t, examine(t, "--workers=1"), "open files", statusOK)
	s := apptest.Settings(t)
	if err := os.Chmod(s.DataDir, 0o500); err != nil {
		t.Fatal(err)
	}
	check := func() []diagnosis { return (&facts{Settings: s}).diagnoses() }
	if os.Geteuid() != 0 { // root can write anywhere
		want(t, check(), "data directory", statusError, "is not writable")
	}
	s.DataDir = filepath.Join(s.DataDir, "file")
	if err := os.WriteFile(s.DataDir, nil, 0o600); err == nil {
		want(t, check(), "data directory", statusError, "is not writable")
	}
}

// TestDoctorOnOutboxes checks outbox tables: sound ones, one without its tables, and servers that do not
// respond.
func TestDoctorOnOutboxes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real MariaDB")
	}
	for _, dialect := range []source.Dialect{source.Postgres, source.MySQL} {
		sound := apptest.NewOutbox(t, dialect)
		list := examine(t, "--relay="+sound.Setting(t, "pay", "absent"))
		want(t, list, "outbox pay", statusWarning, "a crash of the server") // the shared servers do not sync
		want(t, list, "outbox absent", statusError, "refused", "dsn")
		list = examine(t, "--relay="+sound.Setting(t, "pay"), "--roles=api,worker")
		if slices.ContainsFunc(list, func(d diagnosis) bool { return strings.HasPrefix(d.Check, "outbox") }) {
			t.Errorf("without the role relay: %+v", list)
		}
		want(t, examine(t, "--relay="+apptest.EmptyOutbox(t, dialect).Setting(t, "pay")), "outbox pay",
			statusError, "dispatcher_outbox", "relay ddl")
	}
}

// TestDoctorDoesNotHangOnOutboxes checks 200 outbox tables on a server that accepts connections and never
// responds.
func TestDoctorDoesNotHangOnOutboxes(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	d := &doctor{s: apptest.Settings(t, `--relay=[{"name":"pay","password_file":"/not/here",`+
		`"dsn":"postgres://h/pay"},{"name":"s","dsn":"mysql://u@`+silent.Addr().String()+`/s_{000..199}"}]`),
		lookup: notFound, timeout: 300 * time.Millisecond}
	began := time.Now()
	list := d.examine(t.Context())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	want(t, list, "outbox pay", statusError, "/not/here")
	want(t, list, "outbox s-000", statusError)
	want(t, list, "outbox s-199", statusError)
}

// TestSoundOutboxesHaveOneLine: outbox tables without a finding share a line, and each finding has its own.
func TestSoundOutboxesHaveOneLine(t *testing.T) {
	t.Parallel()
	var all []outboxFacts
	for i := range 7 {
		all = append(all, outboxFacts{name: fmt.Sprint("pay-", i)})
	}
	all = append(all, outboxFacts{name: "stock", findings: []source.Finding{
		{Level: source.LevelWarning, Text: "slow", Cure: "wait"},
		{Level: source.LevelError, Text: "no right", Cure: "GRANT"},
	}})
	var lines []string
	for _, d := range diagnoseOutboxes(all) {
		lines = append(lines, strings.Join([]string{d.Check, d.Status, d.Found, d.Cure}, "|"))
	}
	if !slices.Equal(lines, []string{
		"outbox tables|ok|tables, rights and server are as needed: " +
			"pay-0, pay-1, pay-2, pay-3, pay-4, and 2 more|",
		"outbox stock|error|no right|GRANT", "outbox stock|warning|slow|wait",
	}) {
		t.Errorf("got %q", lines)
	}
}
