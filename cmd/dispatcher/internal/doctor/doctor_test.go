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

func TestDoctorJudgesEgressAndNames(t *testing.T) {
	t.Parallel()
	for allow, status := range map[string]string{
		"": statusOK, "8.8.8.0/24": statusOK, "1.1.1.1": statusOK, "10.1.0.0/16": statusWarning, "127.0.0.1": statusWarning, "[::1]": statusWarning,
		"fd00::/8": statusWarning, "shop.internal": statusWarning, "8.8.8.8,192.168.7.0/24": statusWarning, "0.0.0.0/0": statusWarning, "::/0": statusWarning, "168.63.129.16": statusWarning,
	} {
		s := &config.Settings{EgressAllow: strings.Fields(strings.ReplaceAll(allow, ",", " "))}
		want(t, judgeEgress(s), "egress", status)
	}
	want(t, judgeEgress(&config.Settings{EgressAllow: []string{"169.254.0.0/16"}}), "egress", statusWarning, "metadata")
	for allow, word := range map[string]string{"localhost": "nowhere", "localhost,::1": "localhost (what"} {
		s := &config.Settings{EgressAllow: strings.Split(allow, ",")}
		want(t, judgeEgress(s), "egress", statusWarning, word)
	}
	d := &doctor{lookup: func(context.Context, string) ([]string, error) {
		return nil, &net.DNSError{Err: "server misbehaving", Name: askedName, IsTemporary: true}
	}}
	want(t, d.names(t.Context()), "dns", statusError, "server misbehaving")
	d.lookup = notFound
	want(t, d.names(t.Context()), "dns", statusOK)
}

func TestDoctorJudgesLimits(t *testing.T) {
	t.Parallel()
	want(t, []diagnosis{judgeFiles(apptest.Settings(t, "--workers=100000"))}, "open files", statusError)
	want(t, []diagnosis{judgeFiles(apptest.Settings(t, "--workers=1"))}, "open files", statusOK)
	want(t, []diagnosis{judgeTimes(apptest.Settings(t, "--drain-timeout=5s"))}, "time-outs", statusWarning, "drain_timeout")
	s := apptest.Settings(t)
	if err := os.Chmod(s.DataDir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 { // root may write anywhere
		want(t, judgeDataDir(s), "data directory", statusError, "cannot be written to")
	}
	s.DataDir = filepath.Join(s.DataDir, "file")
	if err := os.WriteFile(s.DataDir, nil, 0o600); err == nil {
		want(t, judgeDataDir(s), "data directory", statusError, "cannot be written to")
	}
}

// What a real server cannot be brought to say in a test.
func TestDoctorJudgesWhatServersSay(t *testing.T) {
	t.Parallel()
	info := func(pairs ...string) map[string]string {
		m := map[string]string{
			"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master", "maxmemory_policy": "noeviction", "maxmemory": "0", "used_memory": "1000",
			"aof_enabled": "0", "rdb_last_bgsave_status": "ok",
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	cluster := map[string]string{"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_slots_fail": "0", "cluster_size": "3"}
	broken := map[string]string{"cluster_state": "fail", "cluster_slots_assigned": "10923", "cluster_slots_fail": "0", "cluster_size": "2"}
	denied := errors.New("NOPERM this user has no permissions")
	for name, tc := range map[string]struct {
		judge  func(bool, *redisq.Server) diagnosis
		server redisq.Server
		status string
		word   string
	}{
		"old":                {judgeRedisServer, redisq.Server{Info: info("redis_version", "6.0.16")}, statusError, "6.2"},
		"replica":            {judgeRedisServer, redisq.Server{Info: info("role", "slave")}, statusError, "replica"},
		"node of a Cluster":  {judgeRedisServer, redisq.Server{Info: info("redis_mode", "cluster")}, statusError, "redis+cluster"},
		"no INFO":            {judgeRedisServer, redisq.Server{Untold: denied}, statusWarning, "NOPERM"},
		"no scripts":         {judgeRedisServer, redisq.Server{Info: info(), Scripts: denied}, statusError, "scripts"},
		"nearly full":        {judgeRedisMemory, redisq.Server{Info: info("maxmemory", "1100")}, statusWarning, "raise maxmemory"},
		"would evict":        {judgeRedisMemory, redisq.Server{Info: info("maxmemory_policy", "allkeys-lru")}, statusWarning, "noeviction"},
		"evicts":             {judgeRedisMemory, redisq.Server{Info: info("maxmemory_policy", "allkeys-lru", "maxmemory", "999999")}, statusError, "noeviction"},
		"does not tell":      {judgeRedisMemory, redisq.Server{Untold: denied}, statusWarning, "INFO"},
		"AOF":                {judgeRedisPersistence, redisq.Server{Info: info("aof_enabled", "1"), SaveTold: true}, statusOK, "AOF"},
		"off":                {judgeRedisPersistence, redisq.Server{Info: info(), SaveTold: true}, statusWarning, "rebuilt from SQL"},
		"cannot save":        {judgeRedisPersistence, redisq.Server{Info: info("rdb_last_bgsave_status", "err")}, statusError, "disk of Redis"},
		"Cluster":            {judgeRedisCluster, redisq.Server{ClusterInfo: cluster}, statusOK, "3 masters"},
		"broken Cluster":     {judgeRedisCluster, redisq.Server{ClusterInfo: broken}, statusError, "10923 of 16384"},
		"Cluster unanswered": {judgeRedisCluster, redisq.Server{}, statusWarning, "CLUSTER INFO"},
	} {
		d := tc.judge(false, &tc.server)
		if d.Status != tc.status || !strings.Contains(d.Found+d.Cure, tc.word) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	clocks := func(ahead time.Duration) []diagnosis {
		return judgeClocks(&sqlFacts{settings: map[string]string{}}, &redisFacts{survey: &redisq.Survey{Servers: []redisq.Server{{Ahead: ahead}}}})
	}
	want(t, clocks(20*time.Millisecond), "clocks", statusOK, "Redis +20 ms")
	want(t, clocks(-3*time.Second), "clocks", statusWarning, "Redis -3000 ms")
	want(t, clocks(10*time.Minute), "clocks", statusError)
	for settings, tc := range map[[3]string]struct{ status, word string }{
		{"on", "on", "on"}:    {statusOK, "fsync on"},
		{"off", "on", "on"}:   {statusError, "fsync = on"},
		{"on", "off", "on"}:   {statusError, "synchronous_commit = on"},
		{"on", "local", "on"}: {statusOK, ""},
		{"on", "on", "off"}:   {statusWarning, "full_page_writes"},
	} {
		facts := sqlFacts{settings: map[string]string{
			"fsync": settings[0], "synchronous_commit": settings[1], "full_page_writes": settings[2],
		}}
		want(t, []diagnosis{judgeDurability(&facts)}, "durability", tc.status, tc.word)
	}
	full := sqlFacts{settings: map[string]string{}, mostConns: 30, keptConns: 3, usedConns: 20, ownConns: 1, roleConns: -1, databaseConns: -1}
	s := apptest.Settings(t)
	want(t, []diagnosis{judgeConns(s, &full)}, "connections", statusWarning, "27 for everybody")
	full.roleConns = 10
	want(t, []diagnosis{judgeConns(s, &full)}, "connections", statusError, "10 for everybody")
	want(t, judgeSQL(apptest.Settings(t, append(cmdtest.BothKeys(), "--database-url=postgres://h/d")...),
		&sqlFacts{version: "12.1", number: 120001, settings: map[string]string{}, standby: true}), "database writes", statusError, "standby")
	newer := sqlFacts{applied: map[int64]string{999: "of a newer program"}}
	known, _, err := migrations.For(s.Engine())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range known {
		newer.applied[m.Version] = m.Hash
	}
	want(t, []diagnosis{judgeMigrations(s, &newer)}, "migrations", statusWarning, "newer program")
}

// A server that is well and refuses us must not be restarted.
func TestDoctorTellsWhyPostgresRefuses(t *testing.T) {
	s := apptest.Settings(t, append(cmdtest.BothKeys(), "--database-url=postgres://h/d")...)
	for code, cure := range map[string]string{
		"": "start PostgreSQL", "53300": "out of connections", "57P03": "wait", "28P01": "password", "28000": "pg_hba.conf", "3D000": "name of the database",
		"42501": "grant", "XX000": "what the server says",
	} {
		err := fmt.Errorf("connect: %w", errors.New("refused"))
		if code != "" {
			err = fmt.Errorf("connect: %w", &pgconn.PgError{Code: code, Message: "refused"})
		}
		list := judgeSQL(s, &sqlFacts{err: err})
		if len(list) != 1 || list[0].Status != statusError || !strings.Contains(list[0].Cure, cure) {
			t.Errorf("%s: %+v, want the cure to say %q", code, list, cure)
		}
		if restart := strings.Contains(list[0].Cure, "start PostgreSQL"); restart != (code == "") {
			t.Errorf("%s: the cure is %q", code, list[0].Cure)
		}
	}
}

func TestDoctorJudgesTheIndex(t *testing.T) {
	t.Parallel()
	s := apptest.Settings(t, "--redis-url=redis://h")
	meta := func(generation, built int64, shards int, prefix string) *store.IndexMeta {
		return &store.IndexMeta{Generation: generation, Built: built, Shards: shards, Prefix: prefix}
	}
	ours := meta(3, 3, 1, "dispatcher")
	for _, tc := range []struct {
		meta   *store.IndexMeta
		held   []int64
		unread error
		status string
		word   string
	}{
		{ours, []int64{3}, nil, statusOK, "generation 3"},
		{nil, []int64{0}, nil, statusOK, "first start"},
		{meta(1, 1, 0, ""), []int64{0}, nil, statusOK, "first start"}, // it was embedded before
		{ours, []int64{0}, nil, statusWarning, "serve rebuilds"},
		{ours, []int64{2}, nil, statusWarning, "serve rebuilds"},
		{meta(3, 2, 1, "dispatcher"), []int64{3}, nil, statusWarning, "not filled"},
		{ours, []int64{5}, nil, statusError, "--hold"}, // SQL is older
		{nil, []int64{5}, nil, statusError, "--hold"},  // another database's
		{meta(3, 3, 1, "other"), []int64{3}, nil, statusError, "redis_prefix"},
		{meta(3, 3, 16, "dispatcher"), []int64{3}, nil, statusError, "16 shards"},
		{meta(3, 3, 2, "dispatcher"), []int64{3, 0}, nil, statusWarning, "1 of 2 shards"},
		{ours, []int64{0}, schedule.ErrOlder, statusWarning, "stop the processes of that build"},
		{nil, []int64{0}, schedule.ErrOlder, statusError, "--hold"},
		{ours, []int64{0}, schedule.ErrNewer, statusError, "upgrade this program"},
		{ours, []int64{0}, errors.New("NOPERM"), statusError, "read keys under redis_prefix"},
	} {
		survey := &redisq.Survey{Generations: tc.held}
		if tc.unread != nil {
			survey.Unread = fmt.Errorf("read: %w", tc.unread)
		}
		list := judgeIndex(s, &sqlFacts{meta: tc.meta}, &redisFacts{survey: survey})
		if len(list) != 1 || list[0].Status != tc.status || !strings.Contains(list[0].Found+list[0].Cure, tc.word) {
			t.Errorf("SQL has %+v, the index %v %v: %+v", tc.meta, tc.held, tc.unread, list)
		}
	}
}
