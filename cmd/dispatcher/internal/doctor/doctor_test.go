package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// notFound is a name server's answer that there is no such name.
func notFound(context.Context, string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", Name: askedName, IsNotFound: true}
}

// examine lets a doctor look at a server's settings, with a name server that works.
func examine(t *testing.T, args ...string) []diagnosis {
	t.Helper()
	s := apptest.Settings(t, args...)
	d := &doctor{s: s, lookup: notFound, patience: doctorPatience}
	return d.examine(t.Context())
}

// want holds one check against what it must be, and returns it.
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
		t.Errorf("%s: a cure goes with what is wrong, and only with that: %+v", check, d)
	}
	for _, word := range words {
		if !strings.Contains(d.Found+" "+d.Cure, word) {
			t.Errorf("%s does not say %q: %+v", check, word, d)
		}
	}
}

// snapshot is every file below a directory with its bytes, but for what SQLite's readers share.
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

// makeSecrets has a server store two secrets, of a lane and of an endpoint.
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
	want(t, first, "database", statusWarning, "is not there", "first start")
	want(t, first, "data directory", statusWarning, "is not there")
	want(t, first, "admin key", statusOK, "serve makes one")
	want(t, first, "master key", statusOK, "first start")
	if len(snapshot(t, dir)) != 0 {
		t.Errorf("it made %v", snapshot(t, dir))
	}

	r := apptest.Start(t, apptest.Settings(t, "--data-dir="+data))
	r.Send(t, "http://127.0.0.1:1/")
	makeSecrets(t, r)
	running := examine(t, args...)
	r.End(t)
	before := snapshot(t, dir)
	for _, list := range [][]diagnosis{running, examine(t, args...)} {
		for _, check := range []string{"database", "durability", "integrity", "migrations", "redis", "admin key", "dns", "data directory", "time-outs"} {
			want(t, list, check, statusOK)
		}
		want(t, list, "master key", statusOK, "decrypts what is stored")
	}
	if !maps.Equal(before, snapshot(t, dir)) {
		t.Error("a file was changed")
	}
	wrong := examine(t, append(args, "--master-key="+cmdtest.SomeKey('w'))...)
	want(t, wrong, "master key", statusError, "which is not given")
	if err := os.Remove(filepath.Join(data, config.MasterKeyFile)); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, args...), "master key", statusError, "restore master.key")
	if err := os.Chmod(filepath.Join(data, config.AdminKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, args...), "admin key", statusWarning, "chmod 600")
}

func TestDoctorOnAFileThatIsNoDatabaseYet(t *testing.T) {
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
	want(t, examine(t, "--data-dir="+dir), "migrations", statusWarning, "are not applied", "serve applies them")
	want(t, examine(t, "--data-dir="+dir, "--migrate=false"), "migrations", statusError, `run "dispatcher migrate"`)
}

// The command: exit codes, the table, JSON, and no secret in either.
func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	var outputs [2]string
	for i, form := range []string{"--json=false", "--json"} {
		term := program.Terminal()
		code := term.Invoke("doctor", form, "--data-dir", t.TempDir(), "--database-url", "postgres://u:hidden-password@127.0.0.1:1/d",
			"--admin-key", "hidden-admin-key-of-tests", "--master-key", cmdtest.SomeKey('k'))
		outputs[i] = term.Stdout.String()
		if code != console.ExitFailed || strings.Contains(outputs[i], "hidden") || strings.Contains(outputs[i], cmdtest.SomeKey('k')) {
			t.Errorf("exit code %d, or it shows a secret:\n%s", code, outputs[i])
		}
	}
	cmdtest.Says(t, outputs[0], "database", "1 in error")
	var shown struct {
		OK     bool
		Errors int
		Checks []diagnosis
	}
	if err := json.Unmarshal([]byte(outputs[1]), &shown); err != nil || shown.OK || shown.Errors < 1 || len(shown.Checks) < 5 {
		t.Errorf("shows %s (%v)", outputs[1], err)
	}
	program.Terminal().Ends(t, console.ExitUsage, "doctor", "--workers", "0")
}

// A server that takes connections and never answers is an error in the table within the patience, not a doctor that hangs.
func TestDoctorDoesNotHang(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := apptest.Settings(t, "--database-url=postgres://u:p@"+silent.Addr().String()+"/d", "--redis-url=redis://"+silent.Addr().String(),
		"--admin-key=0123456789abcdef01234567", "--master-key="+cmdtest.SomeKey('m'))
	stuck := make(chan struct{})
	defer close(stuck)
	d := &doctor{s: s, patience: 300 * time.Millisecond, lookup: func(context.Context, string) ([]string, error) {
		<-stuck // and does not even hear that its time is over
		return nil, errors.New("ended")
	}}
	began := time.Now()
	list := d.examine(t.Context())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	want(t, list, "database", statusError, "PostgreSQL cannot be used")
	want(t, list, "redis", statusError, "Redis cannot be used")
	want(t, list, "dns", statusError, "no name server answers")
	want(t, list, "master key", statusWarning, "was not tried")
}

// A case is facts that a check judges.
type judgement struct {
	check, given string
	facts
}

// TestJudgements compares what is said of facts with testdata/judgements.golden.
func TestJudgements(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, j := range slices.Concat(egressCases(), redisCases(), indexCases(t), sqlCases(t), machineCases(t)) {
		if j.Settings == nil {
			j.Settings = &config.Settings{}
		}
		i := slices.IndexFunc(checks, func(c struct {
			name  string
			judge func(*facts) diagnosis
		}) bool {
			return c.name == j.check
		})
		d := checks[i].judge(&j.facts)
		fmt.Fprintf(&b, "%s, %s\n  %s: %s\n", j.check, j.given, d.Status, d.Found)
		if d.Cure != "" {
			fmt.Fprintf(&b, "  cure: %s\n", d.Cure)
		}
		if (d.Status == statusOK) != (d.Cure == "") {
			t.Errorf("%s: a cure goes with what is wrong, and only with that: %+v", j.check, d)
		}
	}
	cmdtest.Golden(t, "judgements", b.String())
}

func egressCases() (list []judgement) {
	for _, allow := range []string{
		"", "8.8.8.0/24", "1.1.1.1", "10.1.0.0/16", "127.0.0.1", "[::1]", "fd00::/8", "shop.internal", "8.8.8.8 192.168.7.0/24",
		"0.0.0.0/0", "::/0", "168.63.129.16", "169.254.0.0/16", "localhost", "localhost ::1", "10.0.0.0/99",
	} {
		list = append(list, judgement{"egress", allow, facts{Settings: &config.Settings{EgressAllow: strings.Fields(allow)}}})
	}
	for _, err := range []error{nil, &net.DNSError{Err: "server misbehaving", Name: askedName, IsTemporary: true}, &net.DNSError{Err: "no such host", IsNotFound: true}} {
		d := &doctor{lookup: func(context.Context, string) ([]string, error) { return nil, err }}
		list = append(list, judgement{"dns", fmt.Sprint(err), facts{names: d.askNames(context.Background())}})
	}
	return list
}

// redisCases are what INFO of a healthy server says but for what is given; - is a server that does not tell.
func redisCases() (list []judgement) {
	const usual = "redis_version=7.0.15 redis_mode=standalone role=master maxmemory_policy=noeviction maxmemory=0 used_memory=1000 " +
		"aof_enabled=0 rdb_last_bgsave_status=ok cluster_state=ok cluster_slots_assigned=16384 cluster_slots_fail=0 cluster_size=3 "
	denied := errors.New("NOPERM this user has no permissions")
	for check, cases := range map[string][]string{
		"redis":             {"", "redis_version=6.0.16", "role=slave", "redis_mode=cluster", "loading=1", "-", "scripts=denied"},
		"redis memory":      {"", "maxmemory=1100", "maxmemory=2000", "maxmemory_policy=allkeys-lru", "maxmemory_policy=allkeys-lru maxmemory=999999", "maxmemory=x", "-"},
		"redis persistence": {"aof_enabled=1 save=told", "save=told", "save=", "save=60", "rdb_last_bgsave_status=err", "aof_enabled=1 aof_last_write_status=err", "-"},
		"redis cluster":     {"", "cluster_state=fail cluster_slots_assigned=10923", "-"},
	} {
		for _, given := range cases {
			info := map[string]string{}
			for pair := range strings.FieldsSeq(usual + given) {
				name, value, _ := strings.Cut(pair, "=")
				info[name] = value
			}
			server := redisq.Server{Addr: "h:1", Info: info, ClusterInfo: info, SaveTold: info["save"] == "told"}
			if info["save"] == "60" {
				server.Save = "60 1"
			}
			if given == "-" {
				server = redisq.Server{Untold: denied}
			}
			if info["scripts"] != "" {
				server.Scripts = denied
			}
			survey := &redisq.Survey{Cluster: check == "redis cluster", Servers: []redisq.Server{server}}
			list = append(list, judgement{check, given, facts{Settings: &config.Settings{RedisURL: "redis://h"}, index: redisFacts{survey: survey}}})
		}
	}
	for _, ahead := range []time.Duration{20 * time.Millisecond, -3 * time.Second, 10 * time.Minute} {
		list = append(list, judgement{"clocks", ahead.String(), facts{
			sql:   sqlFacts{settings: map[string]string{}, ahead: time.Millisecond},
			index: redisFacts{survey: &redisq.Survey{Servers: []redisq.Server{{Ahead: ahead}}}},
		}})
	}
	slices.SortStableFunc(list, func(a, b judgement) int { return strings.Compare(a.check, b.check) })
	return list
}

func indexCases(t *testing.T) (list []judgement) {
	s := apptest.Settings(t, "--redis-url=redis://h")
	meta := func(generation, built int64, shards int, prefix string) *store.IndexMeta {
		return &store.IndexMeta{Generation: generation, Built: built, Shards: shards, Prefix: prefix}
	}
	ours := meta(3, 3, 1, "dispatcher")
	for _, tc := range []struct {
		meta   *store.IndexMeta
		held   []int64
		unread error
	}{
		{ours, []int64{3}, nil},
		{nil, []int64{0}, nil},
		{meta(1, 1, 0, ""), []int64{0}, nil}, // it was embedded before
		{ours, []int64{0}, nil},
		{ours, []int64{2}, nil},
		{meta(3, 2, 1, "dispatcher"), []int64{3}, nil},
		{ours, []int64{5}, nil}, // SQL is older
		{nil, []int64{5}, nil},  // another database's
		{meta(3, 3, 1, "other"), []int64{3}, nil},
		{meta(3, 3, 16, "dispatcher"), []int64{3}, nil},
		{meta(3, 3, 2, "dispatcher"), []int64{3, 0}, nil},
		{ours, []int64{0}, schedule.ErrOlder},
		{nil, []int64{0}, schedule.ErrOlder},
		{ours, []int64{0}, schedule.ErrNewer},
		{ours, []int64{0}, errors.New("NOPERM")},
	} {
		survey := &redisq.Survey{Generations: tc.held}
		if tc.unread != nil {
			survey.Unread = fmt.Errorf("read: %w", tc.unread)
		}
		given := fmt.Sprintf("SQL has none, the index %v", tc.held)
		if tc.meta != nil {
			given = fmt.Sprintf("SQL has %+v, the index %v", *tc.meta, tc.held)
		}
		list = append(list, judgement{"index", given, facts{s, sqlFacts{meta: tc.meta}, redisFacts{survey: survey}, nil}})
	}
	return list
}

func sqlCases(t *testing.T) (list []judgement) {
	s := apptest.Settings(t, append(cmdtest.BothKeys(), "--database-url=postgres://h/d")...)
	add := func(check, given string, f sqlFacts) {
		list = append(list, judgement{check, given, facts{Settings: s, sql: f}})
	}
	for _, code := range []string{"53300", "57P03", "28P01", "28000", "3D000", "42501", "XX000"} {
		add("database", code, sqlFacts{err: fmt.Errorf("connect: %w", &pgconn.PgError{Code: code, Message: "refused"})})
	}
	add("database", "no answer", sqlFacts{err: errors.New("refused")})
	add("database", "old", sqlFacts{version: "12.1", number: 120001})
	for _, set := range []string{"on on on", "off on on", "on off on", "on local on", "on on off"} {
		values := strings.Fields(set)
		settings := map[string]string{"fsync": values[0], "synchronous_commit": values[1], "full_page_writes": values[2]}
		add("durability", set, sqlFacts{settings: settings})
	}
	add("database writes", "a standby", sqlFacts{standby: true})
	add("database writes", "no schema", sqlFacts{})
	full := sqlFacts{mostConns: 30, keptConns: 3, usedConns: 20, ownConns: 1, roleConns: -1, databaseConns: -1}
	add("connections", "nearly full", full)
	full.roleConns = 10
	add("connections", "the role's limit", full)
	known, _, err := migrations.For(s.Engine())
	if err != nil {
		t.Fatal(err)
	}
	newer := sqlFacts{applied: map[int64]string{999: "of a newer program"}}
	for _, m := range known {
		newer.applied[m.Version] = m.Hash
	}
	add("migrations", "newer ones", newer)
	add("migrations", "not readable", sqlFacts{readErr: errors.New("permission denied")})
	return list
}

func machineCases(t *testing.T) []judgement {
	return []judgement{
		{"time-outs", "a short drain_timeout", facts{Settings: apptest.Settings(t, "--drain-timeout=5s")}},
		{"time-outs", "the default", facts{Settings: apptest.Settings(t)}},
		{"data directory", "with PostgreSQL", facts{Settings: &config.Settings{DatabaseURL: "postgres://h/d"}}},
	}
}

func TestDoctorJudgesLimits(t *testing.T) {
	t.Parallel()
	want(t, examine(t, "--workers=100000"), "open files", statusError)
	want(t, examine(t, "--workers=1"), "open files", statusOK)
	s := apptest.Settings(t)
	if err := os.Chmod(s.DataDir, 0o500); err != nil {
		t.Fatal(err)
	}
	judge := func() []diagnosis { return (&facts{Settings: s}).judged() }
	if os.Geteuid() != 0 { // root may write anywhere
		want(t, judge(), "data directory", statusError, "cannot be written to")
	}
	s.DataDir = filepath.Join(s.DataDir, "file")
	if err := os.WriteFile(s.DataDir, nil, 0o600); err == nil {
		want(t, judge(), "data directory", statusError, "cannot be written to")
	}
}
