// Package config reads the settings of a server. Flags override the environment, the environment overrides
// the file, and the file overrides the defaults. Type Settings is the only place with the name, default, help
// and secrecy of a setting.
//
// Wrong settings are reported together, one line each, before the program opens anything. No output and no
// error contains a secret.
package config

import (
	"crypto/rand"
	"encoding/base64"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Settings holds all settings. Each field is one setting with three spellings: the key (redis_url) in a
// --config file, the flag (--redis-url) and the environment variable (DISPATCHER_REDIS_URL). Only the
// tags have the name, default and help.
//
// The tag secret masks the value in every output: "all" masks all of it, "url" the credentials in a URL, and
// "sinks" and "sources" those in a list of them. The
// tag variable names a variable of another program that counts if the setting's own one is not set. The tag
// format is "json" for a text that a file may also hold as lists and mappings.
type Settings struct {
	Listen         string   `key:"listen" group:"Addresses" default:"127.0.0.1:8080" help:"Address of the API and the admin UI."`
	OpsListen      string   `key:"ops_listen" group:"Addresses" default:"127.0.0.1:8081" help:"Address of /metrics, /healthz, /readyz and /debug/pprof."`
	Pprof          bool     `key:"pprof" group:"Addresses" default:"false" help:"Serve /debug/pprof even if ops_listen is not a loopback address."`
	PublicURL      string   `key:"public_url" group:"Addresses" help:"Public URL of the API and the UI, if it differs from listen. With https:// browsers must use HTTPS."`
	TrustedProxies []string `key:"trusted_proxies" group:"Addresses" help:"CIDRs of trusted proxies. X-Forwarded-For is used only from these."`

	DataDir          string `key:"data_dir" group:"Storage" default:"./dispatcher-data" help:"Directory of the SQLite database and of the generated keys. Not used with PostgreSQL."`
	DatabaseURL      string `key:"database_url" group:"Storage" secret:"url" help:"SQL database: postgres://user:password@host/name or sqlite:PATH. Empty: SQLite in the data directory."`
	DatabaseMaxConns int    `key:"database_max_conns" group:"Storage" default:"20" help:"Maximum number of database connections."`
	RedisURL         string `key:"redis_url" group:"Storage" secret:"url" help:"Index on Redis: redis://, rediss://, redis+sentinel://h1,h2/MASTER/db, redis+cluster://h1,h2 or rediss+cluster://h1,h2. Empty: the embedded index in this process."`
	RedisPrefix      string `key:"redis_prefix" group:"Storage" default:"dispatcher" help:"Prefix of all keys in Redis."`

	AdminKey  string   `key:"admin_key" group:"Keys" secret:"all" help:"API key with all rights in this process, at least 24 characters. Empty with SQLite: the first start generates one and writes it to DATA-DIR/admin.key. Required with PostgreSQL."`
	MasterKey []string `key:"master_key" group:"Keys" secret:"all" help:"Key that encrypts stored secrets: base64 of 32 bytes. To replace it, give a list with the new key first. Empty with SQLite: the first start generates one in DATA-DIR/master.key. Required with PostgreSQL."`

	RequestsPerSecond int `key:"requests_per_second" group:"Keys" default:"0" help:"Maximum requests per second of each API key in this process; more get 429. 0: no limit."`

	ApprovalAbove int `key:"approval_above" group:"Keys" default:"0" help:"A bulk action (redrive) on more callbacks, or the deletion of an endpoint with more, waits until another key or person approves it. Bulk actions of a project within one hour count together. 0: none waits. Must be the same in all processes."`

	PanGuard string `key:"pan_guard" group:"Keys" default:"off" help:"Card numbers in bodies: off, mask (hide their middle digits wherever bodies are shown) or reject (mask, and refuse requests that contain one)."`

	OIDCIssuer       string `key:"oidc_issuer" group:"Sign-in" help:"URL of an OpenID Connect provider. People sign in there to use the admin UI, beside API keys. Needs public_url, and a client with the redirect URI PUBLIC_URL/ui/sign-in/callback. Empty: API keys only."`
	OIDCClientID     string `key:"oidc_client_id" group:"Sign-in" help:"Id of the client at the provider."`
	OIDCClientSecret string `key:"oidc_client_secret" group:"Sign-in" secret:"all" help:"Secret of the client at the provider. Empty: a public client."`
	OIDCGroups       string `key:"oidc_groups" group:"Sign-in" format:"json" help:"What the members of groups may do, as a JSON list. Example: [{\"group\": \"payments\", \"project\": \"default\", \"scopes\": [\"operate\"]}, {\"group\": \"platform\", \"root\": true}]. With root they have the rights of the admin key."`
	OIDCGroupsClaim  string `key:"oidc_groups_claim" group:"Sign-in" default:"groups" help:"Claim of the ID token that lists the groups of a person."`

	EgressAllow     []string      `key:"egress_allow" group:"Sending" help:"CIDRs and host names of receivers that are not on the public internet."`
	EgressProxy     string        `key:"egress_proxy" group:"Sending" secret:"url" help:"Proxy for all outgoing requests. Not supported in this version."`
	Workers         int           `key:"workers" group:"Sending" default:"512" help:"Maximum attempts in flight in this process."`
	LaneConcurrency int           `key:"lane_concurrency" group:"Sending" default:"32" help:"Maximum attempts in flight to one destination."`
	Horizon         time.Duration `key:"horizon" group:"Sending" default:"0s" help:"Callbacks that are due later than this stay in SQL and are loaded into Redis in time. At least 2m. 0s: Redis has the whole backlog. Must be the same in all processes."`
	Hold            bool          `key:"hold" group:"Sending" default:"false" help:"Start without sending: accept callbacks but attempt none. An index on Redis that differs from SQL is not repaired, so that the command verify can compare them."`

	Roles             []string      `key:"roles" group:"Life cycle" default:"api,ui,worker,relay" help:"Roles of this process: any of api, ui, worker and relay. The role relay does nothing without the setting relay."`
	Migrate           bool          `key:"migrate" group:"Life cycle" default:"true" help:"Apply the SQL migrations at the start. With --migrate=false, run the command migrate first."`
	ShutdownDelay     time.Duration `key:"shutdown_delay" group:"Life cycle" default:"0s" help:"How long the API stays open after SIGTERM, so that load balancers notice."`
	DrainTimeout      time.Duration `key:"drain_timeout" group:"Life cycle" default:"25s" help:"How long attempts in flight may continue after SIGTERM. Unfinished ones are retried and not counted."`
	RetentionPayload  time.Duration `key:"retention_payload" group:"Life cycle" default:"30d" help:"How long payloads of finished callbacks are kept."`
	RetentionMetadata time.Duration `key:"retention_metadata" group:"Life cycle" default:"400d" help:"How long finished callbacks and their attempts are kept. At least 7d, as long as idempotency keys are kept."`

	Relay string `key:"relay" group:"Relay" format:"json" secret:"sources" help:"Outbox tables in databases of applications that this process reads: a JSON list of sources such as {\"name\":\"pay\", \"dsn\":\"postgres://relay@db/pay\", \"password_file\":\"/keys/pay\"}. A password in a flag is visible to other users of the machine. The name is a part of every idempotency key. Needs the role relay, or the command relay."`

	AlertSink string `key:"alert_sink" group:"Alerts" format:"json" secret:"sinks" help:"Where this process sends alerts about SQL, the queue and the master keys: a JSON list of at most 10 sinks such as {\"type\":\"slack\",\"url\":\"https://…\"}, as in POST /v1/alerts. They need neither SQL nor the queue."`

	LogFormat string `key:"log_format" group:"Logs" help:"Log format: text or json. Empty: text on a terminal, else json."`
	LogLevel  string `key:"log_level" group:"Logs" default:"info" help:"Lowest level that is logged: debug, info, warn or error."`

	OTLPEndpoint     string   `key:"otlp_endpoint" variable:"OTEL_EXPORTER_OTLP_ENDPOINT" group:"Traces" help:"URL of an OpenTelemetry collector that receives traces by OTLP over HTTP, such as http://127.0.0.1:4318. Empty: the variable OTEL_EXPORTER_OTLP_ENDPOINT, or no traces."`
	OTLPHeaders      []string `key:"otlp_headers" variable:"OTEL_EXPORTER_OTLP_HEADERS" group:"Traces" secret:"all" help:"Headers of requests to the collector: NAME=VALUE, with values percent-encoded. Empty: the variable OTEL_EXPORTER_OTLP_HEADERS."`
	TraceSampleRatio float64  `key:"trace_sample_ratio" group:"Traces" default:"0.01" help:"Fraction of callbacks that are traced, 0 to 1. A traceparent in the request decides instead."`
}

// setting describes one field of Settings.
type setting struct {
	field  int
	key    string
	def    string
	help   string
	group  string
	secret string
	// variable is a second environment variable, empty for none.
	variable string
	json     bool
	kind     reflect.Type
}

// catalogue returns the settings in the order of the fields.
func catalogue() []setting {
	t := reflect.TypeFor[Settings]()
	list := make([]setting, t.NumField())
	for i := range list {
		f := t.Field(i)
		list[i] = setting{
			field:  i,
			key:    f.Tag.Get("key"),
			def:    f.Tag.Get("default"),
			help:   f.Tag.Get("help"),
			group:  f.Tag.Get("group"),
			secret: f.Tag.Get("secret"),
			kind:   f.Type,

			variable: f.Tag.Get("variable"),
			json:     f.Tag.Get("format") == "json",
		}
	}
	return list
}

// EnvPrefix starts the name of each environment variable of the program. envFileSuffix ends the name of a
// variable that holds the path of a file with the value.
const (
	EnvPrefix     = "DISPATCHER_"
	envFileSuffix = "_FILE"
)

func (s setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }
func (s setting) env() string  { return EnvPrefix + strings.ToUpper(s.key) }
func (s setting) isList() bool { return s.kind.Kind() == reflect.Slice }
func (s setting) isBool() bool { return s.kind.Kind() == reflect.Bool }

// placeholder stands for the value in help texts.
func (s setting) placeholder() string {
	switch s.kind {
	case reflect.TypeFor[time.Duration]():
		return "DURATION"
	case reflect.TypeFor[int](), reflect.TypeFor[float64]():
		return "N"
	case reflect.TypeFor[[]string]():
		return "LIST"
	}
	return "TEXT"
}

// sentence returns the help with the default.
func (s setting) sentence() string {
	if s.def == "" {
		return s.help
	}
	return s.help + " Default: " + s.def + "."
}

// rawFlag is the unparsed value of a flag; Load parses it together with the other settings. given
// distinguishes an empty value from an absent flag.
type rawFlag struct {
	given  bool
	values []string
}

// Decode implements kong.MapperValue.
func (r *rawFlag) Decode(ctx *kong.DecodeContext) error {
	var value string
	if err := ctx.Scan.PopValueInto("value", &value); err != nil {
		return err
	}
	r.given, r.values = true, append(r.values, value)
	return nil
}

// rawSwitch is a rawFlag that is true if it stands without a value.
type rawSwitch struct{ rawFlag }

// IsBool implements kong.BoolMapperValue.
func (r *rawSwitch) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (r *rawSwitch) Decode(ctx *kong.DecodeContext) error {
	value := "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		value = ctx.Scan.Pop().String()
	}
	r.given, r.values = true, []string{value}
	return nil
}

// Flags are the flags of a command that needs settings. Plugins holds one struct, which flagsOf builds from
// the catalogue.
type Flags struct {
	kong.Plugins
	File rawFlag `name:"config" placeholder:"FILE" help:"YAML file with settings. Example of a line: listen: 127.0.0.1:8080. Flags override environment variables, and these override the file. The variable of --listen is DISPATCHER_LISTEN; DISPATCHER_LISTEN_FILE names a file with the value."`
}

// AllFlags returns the flags of all settings.
func AllFlags() Flags { return flagsOf(func(setting) bool { return true }) }

// StorageFlags returns the flags of the settings of the database and the log.
func StorageFlags() Flags {
	return flagsOf(func(s setting) bool { return s.group == "Storage" || s.group == "Logs" })
}

// flagsOf builds the flags of the chosen settings.
func flagsOf(choose func(setting) bool) Flags {
	var fields []reflect.StructField
	for _, s := range catalogue() {
		if !choose(s) {
			continue
		}
		kind := reflect.TypeFor[rawFlag]()
		if s.isBool() {
			kind = reflect.TypeFor[rawSwitch]()
		}
		fields = append(fields, reflect.StructField{
			Name: reflect.TypeFor[Settings]().Field(s.field).Name,
			Type: kind,
			Tag: structTag("name", s.flag(), "help", s.sentence(), "group", s.group+":", "placeholder",
				s.placeholder()),
		})
	}
	return Flags{Plugins: kong.Plugins{reflect.New(reflect.StructOf(fields)).Interface()}}
}

// structTag formats pairs of names and values as a struct tag.
func structTag(pairs ...string) reflect.StructTag {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(pairs[i] + `:"` + strings.ReplaceAll(pairs[i+1], `"`, `\"`) + `" `)
	}
	return reflect.StructTag(strings.TrimSpace(b.String()))
}

// given returns the value of a setting on the command line.
func (f *Flags) given(s setting) rawFlag {
	for _, plugin := range f.Plugins {
		field := reflect.ValueOf(plugin).Elem().FieldByName(reflect.TypeFor[Settings]().Field(s.field).Name)
		if !field.IsValid() {
			continue
		}
		switch raw := field.Addr().Interface().(type) {
		case *rawFlag:
			return *raw
		case *rawSwitch:
			return raw.rawFlag
		}
	}
	return rawFlag{}
}

// EmbeddedIn returns the settings of a server that a command starts for its own use: SQLite and the embedded
// index in dir, free ports, and egress to 127.0.0.1, where the command's receiver listens. It ignores the
// environment, whose settings belong to other servers.
func EmbeddedIn(dir string) (*Settings, error) {
	l, err := LoadArgs(&console.Console{}, "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0",
		"--data-dir="+dir, "--egress-allow=127.0.0.1/32", "--drain-timeout=2s", "--log-level=warn")
	if err != nil {
		return nil, err
	}
	return &l.Settings, nil
}

// The names of the key files in the data directory, and the prefix of an API key.
const (
	AdminKeyFile  = "admin.key"
	MasterKeyFile = "master.key"
	APIKeyPrefix  = "dk_"
)

// NewAdminKey generates an admin key from 24 random bytes.
func NewAdminKey() string { return APIKeyPrefix + randomText(24, base64.RawURLEncoding) }

// NewMasterKey generates a master key of MasterKeyBytes random bytes.
func NewMasterKey() string { return randomText(MasterKeyBytes, base64.StdEncoding) }

// randomText returns n random bytes in an encoding.
func randomText(n int, encoding *base64.Encoding) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return encoding.EncodeToString(b)
}
