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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
)

// Roles of a process.
const (
	RoleAPI    = "api"
	RoleUI     = "ui"
	RoleWorker = "worker"
	RoleRelay  = "relay"
)

// MasterKeyBytes is the size of a master key in bytes.
const MasterKeyBytes = 32

// MinAdminKey is the minimum length of an admin key in characters: a shorter one can be guessed. makeAdminKey
// is a command that generates a key.
const (
	MinAdminKey  = 24
	makeAdminKey = "openssl rand -hex 24"
)

// ShortAdminKey describes a key that is too short, without its value.
func ShortAdminKey(key string) string {
	return fmt.Sprintf("has %d characters, needs at least %d random ones, for example from %q",
		len(key), MinAdminKey, makeAdminKey)
}

// longestSetting limits durations, so that adding a setting to a time does not overflow.
const longestSetting = 100 * 365 * 24 * time.Hour

// Postgres reports whether the database is PostgreSQL. Otherwise it is SQLite.
func (s *Settings) Postgres() bool {
	return strings.HasPrefix(s.DatabaseURL, "postgres://") ||
		strings.HasPrefix(s.DatabaseURL, "postgresql://")
}

// Embedded reports whether the index is the embedded one of this process.
func (s *Settings) Embedded() bool { return s.RedisURL == "" }

// Has reports whether the process has a role.
func (s *Settings) Has(role string) bool { return slices.Contains(s.Roles, role) }

// checker collects the problems of settings.
type checker struct {
	*Settings
	problems []problem
}

func (c *checker) refuse(key, format string, args ...any) {
	c.problems = append(c.problems, problem{key: key, message: fmt.Sprintf(format, args...)})
}

// checkStorage checks the settings that the command migrate needs.
func (s *Settings) checkStorage() []problem {
	c := &checker{Settings: s}
	c.storage()
	c.logs()
	return c.problems
}

// check checks the settings of a server: each value, and settings that contradict each other.
func (s *Settings) check() []problem {
	c := &checker{Settings: s}
	c.addresses()
	c.storage()
	c.redis()
	c.secrets()
	c.signIn()
	c.sending()
	c.roles()
	c.durations()
	c.logs()
	c.traces()
	c.relay()
	c.sinks()
	return c.problems
}

func (c *checker) addresses() {
	for _, a := range []struct{ key, value string }{{"listen", c.Listen}, {"ops_listen", c.OpsListen}} {
		if err := CheckAddress(a.value); err != nil {
			c.refuse(a.key, "%s", err)
		}
	}
	if c.Listen == c.OpsListen && !strings.HasSuffix(c.Listen, ":0") {
		c.refuse("ops_listen", "is the same address as listen; choose another port")
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "" {
			c.refuse("public_url", "is not a URL such as https://host/path without credentials and query")
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

// CheckAddress returns an error if an address is not host:port with a numeric port, or if its host looks like
// an IP address and is none.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address of the form host:port", address)
	}
	if strings.Trim(host, "0123456789.") == "" && host != "" || strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Errorf("%q does not begin with a valid IP address", address)
		}
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
			c.refuse("database_url", "is not a URL such as postgres://user:password@host:port/name")
		} else if u.Path == "" || u.Path == "/" {
			c.refuse("database_url", "has no database name; write postgres://user:password@host:port/name")
		}
	case c.DatabaseURL == "" || sqlite:
		if sqlite && path == "" {
			c.refuse("database_url", "has no file name; write sqlite:PATH")
		}
		if c.DataDir == "" {
			c.refuse("data_dir", "is empty; SQLite needs it for its keys and its lock file")
		}
	default:
		c.refuse("database_url", "must begin with postgres:// or sqlite:")
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

// secrets checks the keys. PostgreSQL requires both: with several processes, no process can generate them
// for all.
func (c *checker) secrets() {
	for i, key := range c.MasterKey {
		if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != MasterKeyBytes {
			c.refuse("master_key", "key %d is not the base64 of %d bytes", i+1, MasterKeyBytes)
		}
	}
	if c.AdminKey != "" && len(c.AdminKey) < MinAdminKey {
		c.refuse("admin_key", "%s", ShortAdminKey(c.AdminKey))
	}
	switch store.PanGuard(c.PanGuard) {
	case store.PanOff, store.PanMask, store.PanReject:
	default:
		c.refuse("pan_guard", "%q is not off, mask or reject", c.PanGuard)
	}
	c.between("requests_per_second", c.RequestsPerSecond, 0, 1_000_000)
	c.between("approval_above", c.ApprovalAbove, 0, 1_000_000_000)
	if strings.ContainsFunc(c.AdminKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.refuse("admin_key", "has characters that are not allowed in an Authorization header")
	}
	if !c.Postgres() {
		return
	}
	if len(c.MasterKey) == 0 {
		c.refuse("master_key", "is required with PostgreSQL: the base64 of %d random bytes, "+
			"for example from \"openssl rand -base64 %d\"", MasterKeyBytes, MasterKeyBytes)
	}
	if c.AdminKey == "" {
		c.refuse("admin_key", "is required with PostgreSQL: at least %d random characters, "+
			"for example from %q", MinAdminKey, makeAdminKey)
	}
}

// signIn checks the settings of the sign-in with OpenID Connect.
func (c *checker) signIn() {
	if c.OIDCIssuer == "" {
		for _, s := range []struct{ key, value string }{
			{"oidc_client_id", c.OIDCClientID}, {"oidc_client_secret", c.OIDCClientSecret},
			{"oidc_groups", c.OIDCGroups},
		} {
			if s.value != "" {
				c.refuse(s.key, "has no effect without oidc_issuer")
			}
		}
		return
	}
	if err := signin.CheckIssuer(c.OIDCIssuer); err != nil {
		c.refuse("oidc_issuer", "%s", err)
	}
	switch {
	case c.PublicURL == "":
		c.refuse("public_url", "is required with oidc_issuer: the provider sends people back to "+
			"PUBLIC_URL%s", signin.CallbackPath)
	case strings.HasPrefix(c.PublicURL, "http:") && !signin.IsLoopback(c.PublicURL):
		c.refuse("public_url", "must begin with https:// with oidc_issuer, unless it is a loopback address")
	}
	if c.OIDCClientID == "" {
		c.refuse("oidc_client_id", "is required with oidc_issuer")
	}
	if c.OIDCGroupsClaim == "" {
		c.refuse("oidc_groups_claim", "is empty; the usual name is groups")
	}
	if c.OIDCGroups == "" {
		c.refuse("oidc_groups", "is required with oidc_issuer: without a group no person may sign in")
	} else if _, err := signin.ParseGrants(c.OIDCGroups); err != nil {
		c.refuse("oidc_groups", "%s", err)
	}
}

// SignIn returns the options of the identity provider.
func (s *Settings) SignIn() signin.Options {
	return signin.Options{
		Issuer: s.OIDCIssuer, ClientID: s.OIDCClientID, ClientSecret: s.OIDCClientSecret,
		RedirectURL: strings.TrimSuffix(s.PublicURL, "/") + signin.CallbackPath,
		GroupsClaim: s.OIDCGroupsClaim,
	}
}

// sending checks the limits of attempts, egress and the horizon, which only an index on Redis can have.
func (c *checker) sending() {
	for _, allowed := range c.EgressAllow {
		// Check them one by one, so that each wrong one gets its own line.
		if _, err := outbound.NewGuard([]string{allowed}); err != nil {
			c.refuse("egress_allow", "%s", err)
		}
	}
	if c.EgressProxy != "" {
		c.refuse("egress_proxy", "is not supported in this version; leave it empty")
	}
	switch least := schedule.MinHorizon; {
	case c.Horizon == 0:
	case c.Horizon < least:
		c.refuse("horizon", "%s is below the minimum, %s; 0s keeps the whole backlog in Redis",
			schedule.FormatDuration(c.Horizon), schedule.FormatDuration(least))
	case c.Horizon > longestSetting:
		c.refuse("horizon", "%s is above the maximum, %s; 0s keeps the whole backlog in Redis",
			schedule.FormatDuration(c.Horizon), schedule.FormatDuration(longestSetting))
	case c.Embedded():
		c.refuse("horizon", "needs redis_url: the embedded index always has the whole backlog")
	}
	c.between("workers", c.Workers, 1, 100_000)
	c.between("lane_concurrency", c.LaneConcurrency, 1, 100_000)
}

// roles checks the roles. A process with the embedded index must also be the worker, because no other
// process can read this index.
func (c *checker) roles() {
	for _, role := range c.Roles {
		if role != RoleAPI && role != RoleUI && role != RoleWorker && role != RoleRelay {
			c.refuse("roles", "%q is not api, ui, worker or relay", role)
		}
	}
	if len(c.Roles) == 0 {
		c.refuse("roles", "is empty; name at least one of api, ui, worker and relay")
		return
	}
	if !c.Has(RoleWorker) && c.Embedded() {
		c.refuse("roles", "has no worker; without redis_url this process must have the role worker")
	}
}

// durations checks that each duration is in its range, and that payloads are not kept longer than their
// callbacks.
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
			c.refuse(d.key, "%s is below the minimum, %s", schedule.FormatDuration(d.value),
				schedule.FormatDuration(d.least))
		} else if d.value > longestSetting {
			c.refuse(d.key, "%s is above the maximum, %s", schedule.FormatDuration(d.value),
				schedule.FormatDuration(longestSetting))
		}
	}
	if c.RetentionPayload > c.RetentionMetadata {
		c.refuse("retention_payload", "%s is longer than retention_metadata, %s",
			schedule.FormatDuration(c.RetentionPayload), schedule.FormatDuration(c.RetentionMetadata))
	}
}

func (c *checker) logs() {
	if c.LogFormat != "" && c.LogFormat != "text" && c.LogFormat != "json" {
		c.refuse("log_format", "%q is not text or json", c.LogFormat)
	}
	if _, err := LogLevel(c.LogLevel); err != nil {
		c.refuse("log_level", "%s", err)
	}
}

func (c *checker) traces() {
	if c.OTLPEndpoint != "" {
		if err := trace.CheckEndpoint(c.OTLPEndpoint); err != nil {
			c.refuse("otlp_endpoint", "%s", err)
		}
	}
	for i, header := range c.OTLPHeaders {
		if err := trace.CheckHeader(header); err != nil {
			c.refuse("otlp_headers", "header %d: %s", i+1, err)
		}
	}
	if !(c.TraceSampleRatio >= 0 && c.TraceSampleRatio <= 1) { // also refuses NaN
		c.refuse("trace_sample_ratio", "%g is not between 0 and 1", c.TraceSampleRatio)
	}
}

// relay checks the sources of relay. That their databases and projects exist is checked while they are read.
func (c *checker) relay() {
	_, wrong := c.Sources()
	for _, e := range wrong {
		c.refuse("relay", "%s", strings.TrimSpace(e.Field+" "+e.Message))
	}
}

// sinks checks the sinks of alert_sink, and that their robots may be sent to. A mail server is checked when a
// mail is sent.
func (c *checker) sinks() {
	list, wrong := c.Sinks()
	for _, e := range wrong {
		c.refuse("alert_sink", "%s", strings.TrimSpace(e.Field+" "+e.Message))
	}
	guard, err := outbound.NewGuard(c.EgressAllow)
	if err != nil || len(wrong) > 0 {
		return // reported already
	}
	for i := range list {
		if list[i].URL == "" {
			continue
		}
		if err := guard.CheckURL(list[i].URL); err != nil {
			c.refuse("alert_sink", "[%d].url: %s", i, err)
		}
	}
}

func (c *checker) between(key string, value, least, most int) {
	if value < least || value > most {
		c.refuse(key, "%d is not between %d and %d", value, least, most)
	}
}

// SQLitePath returns the path of the SQLite file.
func (s *Settings) SQLitePath() string { return strings.TrimPrefix(s.Database(), "sqlite:") }

// Engine returns the database's name in package migrations.
func (s *Settings) Engine() string {
	if s.Postgres() {
		return migrations.Postgres
	}
	return migrations.SQLite
}

// LogLevel parses the name of a level.
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
	return 0, fmt.Errorf("%q is not debug, info, warn or error", name)
}

// DatabaseFileName is the SQLite file in the data directory.
const DatabaseFileName = "dispatcher.db"

// Database returns the URL of the database: database_url, or SQLite in the data directory if it is empty.
func (s *Settings) Database() string {
	if s.DatabaseURL == "" {
		return "sqlite:" + filepath.Join(s.DataDir, DatabaseFileName)
	}
	return s.DatabaseURL
}
