package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// loadWith reads the settings as "serve" would with these arguments.
func loadWith(t *testing.T, env []string, args ...string) (*loaded, error) {
	t.Helper()
	return LoadArgs(&program.Terminal(env...).Console, args...)
}

func TestDefaultsCanBeRead(t *testing.T) {
	t.Parallel()
	l, err := loadWith(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Listen: "127.0.0.1:8080", OpsListen: "127.0.0.1:8081", DataDir: "./dispatcher-data", DatabaseMaxConns: 20,
		RedisPrefix: "dispatcher", Workers: 512, LaneConcurrency: 32, Roles: []string{"api", "ui", "worker"}, Migrate: true,
		DrainTimeout: 25 * time.Second, RetentionPayload: 30 * 24 * time.Hour, RetentionMetadata: 400 * 24 * time.Hour, LogLevel: "info",
		PanGuard: "off",
	}
	if diff := cmp.Diff(want, l.Settings); diff != "" {
		t.Error(diff)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := cmdtest.WriteFile(t, "d.yaml", "# all of them\nworkers: 1\nlane_concurrency: 1\ndatabase_max_conns: 1\nlog_level: warn\n")
	secret := cmdtest.WriteFile(t, "secret", "from-a-file-of-24-letters\n")
	env := []string{"DISPATCHER_WORKERS=2", "DISPATCHER_LANE_CONCURRENCY=2", "DISPATCHER_CONFIG=" + file, "DISPATCHER_ADMIN_KEY_FILE=" + secret, "DISPATCHER_LOG_FORMAT="}
	l, err := loadWith(t, env, "--workers", "3")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"workers": l.Workers, "lane_concurrency": l.LaneConcurrency, "database_max_conns": l.DatabaseMaxConns,
		"redis_prefix": l.RedisPrefix, "admin_key": l.AdminKey, "log_level": l.LogLevel, "log_format": l.LogFormat,
	}
	want := map[string]any{
		"workers": 3, "lane_concurrency": 2, "database_max_conns": 1,
		"redis_prefix": "dispatcher", "admin_key": "from-a-file-of-24-letters",
		"log_level": "warn", "log_format": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for key, origin := range map[string]string{
		"workers":            "flag --workers",
		"lane_concurrency":   "environment DISPATCHER_LANE_CONCURRENCY",
		"database_max_conns": "file d.yaml:4",
		"redis_prefix":       "default",
		"admin_key":          "environment DISPATCHER_ADMIN_KEY_FILE (" + secret + ")",
		"log_format":         "default",
	} {
		if l.origins[key] != origin {
			t.Errorf("%s came from %q, not %q", key, l.origins[key], origin)
		}
	}
}

// Each setting has three spellings that mean the same.
func TestEverySettingHasThreeSpellings(t *testing.T) {
	t.Parallel()
	written := map[string]string{
		"listen": "127.0.0.1:1", "ops_listen": "127.0.0.1:2", "public_url": "https://h.example/x", "trusted_proxies": "10.0.0.0/8,::1",
		"data_dir": "/d", "database_url": "sqlite:/x.db", "database_max_conns": "7", "redis_url": "redis://h/1", "redis_prefix": "p",
		"admin_key":  "abcdefghijklmnopqrstuvwx",
		"master_key": cmdtest.SomeKey('a') + "," + cmdtest.SomeKey('b'), "egress_allow": "10.0.0.0/8,shop.example",
		"workers": "9", "lane_concurrency": "3", "horizon": "0s", "hold": "true", "roles": "api,worker", "migrate": "false",
		"shutdown_delay": "1s", "drain_timeout": "2s", "retention_payload": "1d", "retention_metadata": "500d12h",
		"log_format": "json", "log_level": "debug", "requests_per_second": "7", "pprof": "true",
		"pan_guard": "mask",
	}
	for _, s := range catalogue() {
		value, ok := written[s.key]
		if !ok {
			if s.key != "egress_proxy" {
				t.Errorf("%s is not tried", s.key)
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
		if diff := cmp.Diff(flags.Settings, env.Settings); diff != "" {
			t.Errorf("flag and variable of %s differ: %s", s.key, diff)
		}
		if diff := cmp.Diff(flags.Settings, file.Settings); diff != "" {
			t.Errorf("flag and key of %s differ: %s", s.key, diff)
		}
		if def, err := loadWith(t, nil); err != nil || s.key != "horizon" && cmp.Diff(def.Settings, flags.Settings) == "" {
			t.Errorf("%s has no effect (%v)", s.key, err)
		}
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	const pg = "--database-url=postgres://u:hidden-password@h/d"
	for name, tc := range map[string]struct {
		env, args []string
		file      string
		// want has a part of each line, in order.
		want []string
	}{
		"unknown key":               {file: "workrs: 1\n", want: []string{`d.yaml:1: unknown setting "workrs"; did you mean workers?`}},
		"unknown keys, all":         {file: "a1: 1\nworkers: 2\nb2: 1\n", want: []string{`d.yaml:1: unknown setting "a1"`, `d.yaml:3: unknown setting "b2"`}},
		"config in the file":        {file: "config: x\n", want: []string{`unknown setting "config"`}},
		"key twice":                 {file: "workers: 1\nworkers: 2\n", want: []string{"line 2"}},
		"mapping for a value":       {file: "listen:\n  a: b\n", want: []string{"d.yaml:1: listen takes one plain value"}},
		"list for a value":          {file: "listen: [a, b]\n", want: []string{"takes one value, not a list"}},
		"not a mapping":             {file: "- a\n", want: []string{"not a list of settings"}},
		"not yaml":                  {file: "a: b\n c: [\n", want: []string{"d.yaml is not YAML"}},
		"unknown variable":          {env: []string{"DISPATCHER_REDIS_ULR=x"}, want: []string{"unknown environment variable DISPATCHER_REDIS_ULR; did you mean DISPATCHER_REDIS_URL?"}},
		"variable of test builds":   {env: []string{"DISPATCHER_FAILPOINT_TIMES=lease=1s"}, want: []string{"unknown environment variable DISPATCHER_FAILPOINT_TIMES"}},
		"variable and its file":     {env: []string{"DISPATCHER_ADMIN_KEY=x", "DISPATCHER_ADMIN_KEY_FILE=/x"}, want: []string{"both set"}},
		"file that is missing":      {env: []string{"DISPATCHER_ADMIN_KEY_FILE=/does/not/exist"}, want: []string{"DISPATCHER_ADMIN_KEY_FILE: cannot read /does/not/exist"}},
		"config that is missing":    {env: []string{"DISPATCHER_CONFIG=/does/not/exist"}, want: []string{"cannot read the settings file /does/not/exist"}},
		"number":                    {args: []string{"--workers=many"}, want: []string{`setting workers: "many" is not a whole number (from flag --workers)`}},
		"number out of range":       {args: []string{"--workers=0"}, want: []string{"setting workers: 0 is not between 1 and 100000"}},
		"duration":                  {args: []string{"--drain-timeout=25"}, want: []string{"setting drain_timeout: "}},
		"negative duration":         {args: []string{"--shutdown-delay=-1s"}, want: []string{"setting shutdown_delay: -1s is below the least, 0s"}},
		"switch":                    {args: []string{"--migrate=perhaps"}, want: []string{"setting migrate: "}},
		"address":                   {args: []string{"--listen=8080"}, want: []string{"setting listen: "}},
		"same address twice":        {args: []string{"--listen=127.0.0.1:9", "--ops-listen=127.0.0.1:9"}, want: []string{"setting ops_listen: is the same address"}},
		"database":                  {args: []string{"--database-url=mysql://h/d"}, want: []string{"setting database_url: begins with neither"}},
		"redis":                     {args: []string{"--redis-url=http://h"}, want: []string{"setting redis_url: "}},
		"prefix":                    {args: []string{"--redis-prefix=a{b}"}, want: []string{"setting redis_prefix: "}},
		"proxy list":                {args: []string{"--trusted-proxies=10.0.0.0/8,x"}, want: []string{`setting trusted_proxies: "x"`}},
		"egress":                    {args: []string{"--egress-allow=10.0.0.0/99"}, want: []string{"setting egress_allow: "}},
		"master key":                {args: []string{"--master-key=" + cmdtest.SomeKey('a') + ",c2hvcnQ="}, want: []string{"setting master_key: key 2 of the list"}},
		"log level":                 {args: []string{"--log-level=loud"}, want: []string{"setting log_level: "}},
		"log format":                {args: []string{"--log-format=xml"}, want: []string{"setting log_format: "}},
		"horizon of the embedded":   {args: []string{"--horizon=3h"}, want: []string{"setting horizon: is for an index on Redis"}},
		"horizon that is too near":  {args: []string{"--horizon=1m59s", "--redis-url=redis://h"}, want: []string{"setting horizon: 1m59s is below the least, 2m"}},
		"horizon in the past":       {args: []string{"--horizon=-10m", "--redis-url=redis://h"}, want: []string{"setting horizon: -10m is below the least, 2m"}},
		"horizon without an end":    {args: []string{"--horizon=40000d", "--redis-url=redis://h"}, want: []string{"setting horizon: 40000d is above the most, 36500d"}},
		"egress proxy":              {args: []string{"--egress-proxy=http://p"}, want: []string{"setting egress_proxy: is not supported"}},
		"roles without worker":      {args: []string{"--roles=api"}, want: []string{"setting roles: has no worker"}},
		"unknown role":              {args: []string{"--roles=api,worker,cron"}, want: []string{`setting roles: "cron"`}},
		"no role":                   {args: []string{"--roles="}, want: []string{"setting roles: is empty"}},
		"postgres without keys":     {args: []string{pg}, want: []string{"setting master_key: is required", "setting admin_key: is required"}},
		"payload outlives metadata": {args: []string{"--retention-payload=500d"}, want: []string{"setting retention_payload: 500d is longer"}},
		"metadata gone before idempotency keys": {
			args: []string{"--retention-payload=1d", "--retention-metadata=6d23h59m"},
			want: []string{"setting retention_metadata: 6d23h59m is below the least, 7d"},
		},
		"admin key that is short": {
			args: []string{"--admin-key=x"}, want: []string{"setting admin_key: has 1 of at least 24 characters"},
		},
		"admin key of 23": {
			env:  []string{"DISPATCHER_ADMIN_KEY=abcdefghijklmnopqrstuvw"},
			want: []string{"setting admin_key: has 23 of at least 24 characters"},
		},
		"rate below none": {
			args: []string{"--requests-per-second=-1"},
			want: []string{"setting requests_per_second: -1 is not between 0 and 1000000"},
		},
		"guard of cards that is none": {
			args: []string{"--pan-guard=hide"},
			want: []string{`setting pan_guard: "hide" is neither off, mask nor reject`},
		},
		"rate that is no number": {
			args: []string{"--requests-per-second=1.5"},
			want: []string{`setting requests_per_second: "1.5" is not a whole number`},
		},
		"several at once": {
			env:  []string{"DISPATCHER_NONSENSE=1", "DISPATCHER_LOG_LEVEL=loud"},
			args: []string{"--workers=x", "--roles=api"}, file: "lane_concurrency: 0\nnonsense: 1\n",
			want: []string{`unknown setting "nonsense"`, "DISPATCHER_NONSENSE", "setting workers", "setting lane_concurrency: 0 is not between 1 and 100000 (from file d.yaml:1)", "setting roles", "setting log_level"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"config", "--data-dir", t.TempDir()}, tc.args...)
			if tc.file != "" {
				args = append(args, "--config", cmdtest.WriteFile(t, "d.yaml", tc.file))
			}
			term := program.Terminal(tc.env...)
			term.Ends(t, console.ExitUsage, args...)
			lines := term.Lines()
			if len(lines) != len(tc.want) {
				t.Fatalf("got %d lines, not %d:\n%s", len(lines), len(tc.want), strings.Join(lines, "\n"))
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, not about %q", i+1, lines[i], want)
				}
			}
			if strings.Contains(term.Stderr.String(), "hidden-password") {
				t.Error("a password is shown")
			}
		})
	}
}

func TestSettingsThatAreTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ env, args []string }{
		"postgres with its keys":     {args: append(cmdtest.BothKeys(), "--database-url=postgres://h/d")},
		"api alone, with redis":      {args: []string{"--roles=api", "--redis-url=rediss+cluster://h1,h2"}},
		"variables of the clients":   {env: []string{"DISPATCHER_SERVER=http://h", "DISPATCHER_KEY=k", "DISPATCHER_KEY_FILE=/x"}},
		"variables that are not our": {env: []string{"DISPATCH=1", "OTHER_DISPATCHER_X=1"}},
		"empty variables":            {env: []string{"DISPATCHER_WORKERS=", "DISPATCHER_NONSENSE="}},
		"service links": {env: []string{
			"DISPATCHER_SERVICE_HOST=10.0.0.1", "DISPATCHER_SERVICE_PORT=80", "DISPATCHER_SERVICE_PORT_HTTP=80",
			"DISPATCHER_PORT=tcp://10.0.0.1:80", "DISPATCHER_PORT_80_TCP_ADDR=10.0.0.1",
		}},
		"the least horizon":          {args: []string{"--horizon=2m", "--redis-url=redis://h"}},
		"the least retention":        {args: []string{"--retention-payload=1s", "--retention-metadata=7d"}},
		"a horizon of a day":         {args: []string{"--horizon=1d", "--redis-url=redis+cluster://h1,h2"}},
		"free ports":                 {args: []string{"--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"}},
		"egress by name and address": {args: []string{"--egress-allow=10.1.0.0/16,127.0.0.1,shop.internal"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := loadWith(t, tc.env, tc.args...); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilesOfSecretsLoseOneNewline(t *testing.T) {
	t.Parallel()
	const want = "abcdefghijklmnopqrstuvwxyz"
	for _, content := range []string{want, want + "\n", want + "\r\n"} {
		l, err := loadWith(t, []string{"DISPATCHER_ADMIN_KEY_FILE=" + cmdtest.WriteFile(t, "key", content)})
		if err != nil || l.AdminKey != want {
			t.Errorf("%q was read as %q (%v)", content, l.AdminKey, err)
		}
	}
	if _, err := loadWith(t, []string{"DISPATCHER_ADMIN_KEY_FILE=" + cmdtest.WriteFile(t, "key", "\n")}); err == nil {
		t.Error("an empty file was taken")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	term := program.Terminal("DISPATCHER_ADMIN_KEY=hidden-key-of-24-letters", "DISPATCHER_WORKERS=64")
	code := term.Invoke("config", "--config", cmdtest.WriteFile(t, "d.yaml", "egress_allow: [10.0.0.0/8, shop.internal]\n"),
		"--database-url", "postgres://user:hidden-password@db.example:5432/pay?sslmode=verify-full&sslpassword=hidden-too",
		"--redis-url", "redis+sentinel://u:hidden-again@h1,h2/main/0", "--master-key", cmdtest.SomeKey('h')+","+cmdtest.SomeKey('i'), "--hold")
	if code != console.ExitOK {
		t.Fatalf("exit code %d: %s", code, term.Stderr.String())
	}
	got := term.Stdout.String()
	if strings.Contains(got, "hidden") || strings.Contains(got, cmdtest.SomeKey('h')) {
		t.Error("a secret is shown")
	}
	cmdtest.Golden(t, "config", got)
}

func TestMaskURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                     "",
		"sqlite:/var/lib/d.db":                 "sqlite:/var/lib/d.db",
		"postgres://h/d":                       "postgres://h/d",
		"postgres://u@h/d":                     "postgres://u@h/d",
		"postgres://u:p@h/d":                   "postgres://u:***@h/d",
		"postgres://u:p@ss/w@h/d":              "postgres://u:***@h/d",
		"redis://:p@h:6379/1":                  "redis://:***@h:6379/1",
		"redis+cluster://u:p@h1:1,h2:2":        "redis+cluster://u:***@h1:1,h2:2",
		"postgres://h/d?sslmode=a&password=b":  "postgres://h/d?sslmode=a&password=***",
		"postgres://h/d?pass%77ord=b&x#secret": "postgres://h/d?pass%77ord=***&x=***",
		"u:p@h/d":                              "***",
	} {
		if got := maskURL(in); got != want {
			t.Errorf("%q is shown as %q, not %q", in, got, want)
		}
	}
}

func FuzzMaskURLNeverShowsThePassword(f *testing.F) {
	for _, seed := range []string{"p", "p@ss", "p/w", "p?w", "p#w", "a@b?c", "a:b", "%40", "päss"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, password string) {
		password = "hide" + password + "hide"
		if got := maskURL("postgres://user:" + password + "@host/name"); strings.Contains(got, "hide") {
			t.Errorf("%q shows a part of the password: %q", password, got)
		}
	})
}

func TestScrub(t *testing.T) {
	t.Parallel()
	s := &Settings{DatabaseURL: "postgres://u:hidden-password@h/d", RedisURL: "redis://:hidden-redis@h", AdminKey: "hidden-admin", MasterKey: []string{cmdtest.SomeKey('h')}}
	got := s.Scrub("dial postgres://u:hidden-password@h/d: password hidden-password, " + s.RedisURL + " with hidden-admin and " + cmdtest.SomeKey('h'))
	if strings.Contains(got, "hidden") || strings.Contains(got, cmdtest.SomeKey('h')) {
		t.Errorf("still shows a secret: %q", got)
	}
	if !strings.Contains(got, "postgres://u:***@h/d") {
		t.Errorf("hides more than it must: %q", got)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"redis_url", "workers", "roles"}
	for name, want := range map[string]string{"redis_ulr": "redis_url", "worker": "workers", "completely_else": "", "ro": ""} {
		if got := nearest(name, known); got != want {
			t.Errorf("%q is taken for %q, not %q", name, got, want)
		}
	}
	if !slices.Contains(known, nearest("wrkers", known)) {
		t.Error("a missing letter is not seen")
	}
}
