package config

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The roles of a process.
const (
	RoleAPI    = "api"
	RoleUI     = "ui"
	RoleWorker = "worker"
)

// MasterKeyBytes is the size of a master key.
const MasterKeyBytes = 32

// minAdminKey is the least length of an admin key: a shorter one can be guessed. makeAdminKey is a command
// that makes one.
const (
	MinAdminKey  = 24
	makeAdminKey = "openssl rand -hex 24"
)

// ShortAdminKey says what is wrong with a key that is too short, without it.
func ShortAdminKey(key string) string {
	return fmt.Sprintf("has %d of at least %d characters; choose random ones, for example from %q",
		len(key), MinAdminKey, makeAdminKey)
}

// longestSetting bounds durations, so that a time plus a setting is always a time.
const longestSetting = 100 * 365 * 24 * time.Hour

// Postgres says whether the database is PostgreSQL; otherwise it is SQLite.
func (s *Settings) Postgres() bool {
	return strings.HasPrefix(s.DatabaseURL, "postgres://") ||
		strings.HasPrefix(s.DatabaseURL, "postgresql://")
}

// Embedded says whether the index is the one in this process.
func (s *Settings) Embedded() bool { return s.RedisURL == "" }

// Has says whether the process has a role.
func (s *Settings) Has(role string) bool { return slices.Contains(s.Roles, role) }

// A checker gathers what is wrong.
type checker struct {
	*Settings
	problems []problem
}

func (c *checker) refuse(key, format string, args ...any) {
	c.problems = append(c.problems, problem{key: key, message: fmt.Sprintf(format, args...)})
}

// checkStorage says what is wrong with the settings that migrate needs.
func (s *Settings) checkStorage() []problem {
	c := &checker{Settings: s}
	c.storage()
	c.logs()
	return c.problems
}

// check says what is wrong with the settings of a server: each value by itself, and those that contradict
// each other.
func (s *Settings) check() []problem {
	c := &checker{Settings: s}
	c.addresses()
	c.storage()
	c.redis()
	c.secrets()
	c.sending()
	c.roles()
	c.durations()
	c.logs()
	return c.problems
}

func (c *checker) addresses() {
	for _, a := range []struct{ key, value string }{{"listen", c.Listen}, {"ops_listen", c.OpsListen}} {
		if err := CheckAddress(a.value); err != nil {
			c.refuse(a.key, "%s", err)
		}
	}
	if c.Listen == c.OpsListen && !strings.HasSuffix(c.Listen, ":0") {
		c.refuse("ops_listen", "is the same address as listen; they need one each")
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "" {
			c.refuse("public_url", "is not an address of the form https://host/path without credentials "+
				"and query")
		}
	}
	for _, p := range c.TrustedProxies {
		if _, err := netip.ParsePrefix(p); err == nil {
			continue
		}
		if _, err := netip.ParseAddr(p); err != nil {
			c.refuse("trusted_proxies", "%q is neither a CIDR nor an IP address", p)
		}
	}
}

func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address of the form host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q does not end with a port number", address)
	}
	return nil
}

func (c *checker) storage() {
	c.between("database_max_conns", c.DatabaseMaxConns, 1, 1000)
	switch path, sqlite := strings.CutPrefix(c.DatabaseURL, "sqlite:"); {
	case c.Postgres():
		u, err := url.Parse(c.DatabaseURL)
		if err != nil {
			c.refuse("database_url", "is not an address of the form postgres://user:password@host:port/name")
		} else if u.Path == "" || u.Path == "/" {
			c.refuse("database_url", "does not name a database: postgres://user:password@host:port/name")
		}
	case c.DatabaseURL == "" || sqlite:
		if sqlite && path == "" {
			c.refuse("database_url", "does not name a file: sqlite:PATH")
		}
		if c.DataDir == "" {
			c.refuse("data_dir", "is empty; SQLite needs it for its keys and its lock")
		}
	default:
		c.refuse("database_url", "begins with neither postgres:// nor sqlite:")
	}
}

var redisPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$`)

func (c *checker) redis() {
	if c.RedisURL != "" {
		if err := redisq.CheckURL(c.RedisURL); err != nil {
			c.refuse("redis_url", "%s", err)
		}
	}
	if !redisPrefix.MatchString(c.RedisPrefix) {
		c.refuse("redis_prefix", "%q is not 1 to 64 letters, digits, dots, colons, dashes and underscores",
			c.RedisPrefix)
	}
}

func (c *checker) secrets() {
	for i, key := range c.MasterKey {
		if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != MasterKeyBytes {
			c.refuse("master_key", "key %d of the list is not the base64 of %d bytes", i+1, MasterKeyBytes)
		}
	}
	if c.AdminKey != "" && len(c.AdminKey) < MinAdminKey {
		c.refuse("admin_key", "%s", ShortAdminKey(c.AdminKey))
	}
	switch store.PanGuard(c.PanGuard) {
	case store.PanOff, store.PanMask, store.PanReject:
	default:
		c.refuse("pan_guard", "%q is neither off, mask nor reject", c.PanGuard)
	}
	c.between("requests_per_second", c.RequestsPerSecond, 0, 1_000_000)
	if strings.ContainsFunc(c.AdminKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.refuse("admin_key", "has characters that cannot stand in an Authorization header")
	}
	if !c.Postgres() {
		return
	}
	if len(c.MasterKey) == 0 {
		c.refuse("master_key", "is required with PostgreSQL: the base64 of %d random bytes, for example "+
			"from \"openssl rand -base64 %d\"", MasterKeyBytes, MasterKeyBytes)
	}
	if c.AdminKey == "" {
		c.refuse("admin_key", "is required with PostgreSQL: at least %d random characters, for example "+
			"from %q",
			MinAdminKey, makeAdminKey)
	}
}

func (c *checker) sending() {
	for _, allowed := range c.EgressAllow {
		// Each alone, so that each gets its own line.
		if _, err := outbound.NewGuard([]string{allowed}); err != nil {
			c.refuse("egress_allow", "%s", err)
		}
	}
	if c.EgressProxy != "" {
		c.refuse("egress_proxy", "is not supported by this version; leave it empty")
	}
	switch least := schedule.MinHorizon; {
	case c.Horizon == 0:
	case c.Horizon < least:
		c.refuse("horizon", "%s is below the least, %s; 0s keeps the whole backlog in the index",
			schedule.FormatDuration(c.Horizon), schedule.FormatDuration(least))
	case c.Horizon > longestSetting:
		c.refuse("horizon", "%s is above the most, %s; 0s keeps the whole backlog in the index",
			schedule.FormatDuration(c.Horizon), schedule.FormatDuration(longestSetting))
	case c.Embedded():
		c.refuse("horizon", "is for an index on Redis, and redis_url is empty: the index in this process "+
			"holds the whole backlog")
	}
	c.between("workers", c.Workers, 1, 100_000)
	c.between("lane_concurrency", c.LaneConcurrency, 1, 100_000)
}

func (c *checker) roles() {
	for _, role := range c.Roles {
		if role != RoleAPI && role != RoleUI && role != RoleWorker {
			c.refuse("roles", "%q is none of api, ui and worker", role)
		}
	}
	if len(c.Roles) == 0 {
		c.refuse("roles", "is empty; name at least one of api, ui and worker")
		return
	}
	if !c.Has(RoleWorker) && c.Embedded() {
		c.refuse("roles", "has no worker, and without redis_url the index is in this process: nobody would "+
			"send")
	}
}

func (c *checker) durations() {
	for _, d := range []struct {
		key          string
		value, least time.Duration
	}{
		{"shutdown_delay", c.ShutdownDelay, 0},
		{"drain_timeout", c.DrainTimeout, time.Millisecond},
		{"retention_payload", c.RetentionPayload, time.Second},
		{"retention_metadata", c.RetentionMetadata, leastRetention},
	} {
		if d.value < d.least {
			c.refuse(d.key, "%s is below the least, %s", schedule.FormatDuration(d.value),
				schedule.FormatDuration(d.least))
		} else if d.value > longestSetting {
			c.refuse(d.key, "%s is above the most, %s", schedule.FormatDuration(d.value),
				schedule.FormatDuration(longestSetting))
		}
	}
	if c.RetentionPayload > c.RetentionMetadata {
		c.refuse("retention_payload", "%s is longer than retention_metadata, %s: a payload goes with its "+
			"callback at the latest",
			schedule.FormatDuration(c.RetentionPayload), schedule.FormatDuration(c.RetentionMetadata))
	}
}

func (c *checker) logs() {
	if c.LogFormat != "" && c.LogFormat != "text" && c.LogFormat != "json" {
		c.refuse("log_format", "%q is neither text nor json", c.LogFormat)
	}
	if _, err := LogLevel(c.LogLevel); err != nil {
		c.refuse("log_level", "%s", err)
	}
}

func (c *checker) between(key string, value, least, most int) {
	if value < least || value > most {
		c.refuse(key, "%d is not between %d and %d", value, least, most)
	}
}

// SQLitePath returns the path of SQLite's file.
func (s *Settings) SQLitePath() string { return strings.TrimPrefix(s.Database(), "sqlite:") }

// Engine names the database as package migrations does.
func (s *Settings) Engine() string {
	if s.Postgres() {
		return migrations.Postgres
	}
	return migrations.SQLite
}

// LogLevel reads the name of a level.
func LogLevel(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is none of debug, info, warn and error", name)
}

// DatabaseFileName is SQLite's file in the data directory.
const DatabaseFileName = "dispatcher.db"

// Database returns the address that the database is opened with: SQLite in the data directory where none is
// set.
func (s *Settings) Database() string {
	if s.DatabaseURL == "" {
		return "sqlite:" + filepath.Join(s.DataDir, DatabaseFileName)
	}
	return s.DatabaseURL
}
