// Package config reads the settings of a server: from flags, the environment, a file and defaults, in this
// order of strength. Settings is the only place where the name, default, help and secrecy of a setting are
// written.
//
// Every wrong setting is reported in one line, before anything is opened. Secrets are in no output and no
// error.
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

// Settings are everything that can be set. Each field is one setting with three spellings: the key
// (redis_url) in a --config file, the flag (--redis-url) and the environment variable (DISPATCHER_REDIS_URL).
// The tags are the only place where name, default and help of a setting are written.
//
// The secret tag keeps a value out of every output: "all" of it, or the credentials in a "url".
type Settings struct {
	Listen         string   `key:"listen" group:"Addresses" default:"127.0.0.1:8080" help:"Address of the API and the admin UI."`
	OpsListen      string   `key:"ops_listen" group:"Addresses" default:"127.0.0.1:8081" help:"Address of /metrics, /healthz, /readyz and /debug/pprof."`
	Pprof          bool     `key:"pprof" group:"Addresses" default:"false" help:"Show /debug/pprof on an ops_listen that is not on loopback, too."`
	PublicURL      string   `key:"public_url" group:"Addresses" help:"URL under which people and programs reach the API and the UI, if it is not the address itself. With https:// browsers are held to https."`
	TrustedProxies []string `key:"trusted_proxies" group:"Addresses" help:"CIDRs of the proxies whose X-Forwarded-For is believed."`

	DataDir          string `key:"data_dir" group:"Storage" default:"./dispatcher-data" help:"Directory of the embedded database and of the keys made for it; unused with PostgreSQL."`
	DatabaseURL      string `key:"database_url" group:"Storage" secret:"url" help:"SQL database: postgres://user:password@host/name or sqlite:PATH; empty is SQLite in the data directory."`
	DatabaseMaxConns int    `key:"database_max_conns" group:"Storage" default:"20" help:"Most connections to the database."`
	RedisURL         string `key:"redis_url" group:"Storage" secret:"url" help:"Index on Redis: redis://, rediss://, redis+sentinel://h1,h2/MASTER/db, redis+cluster://h1,h2 or rediss+cluster://h1,h2; empty is the index in this process."`
	RedisPrefix      string `key:"redis_prefix" group:"Storage" default:"dispatcher" help:"Prefix of every key in Redis."`

	AdminKey  string   `key:"admin_key" group:"Keys" secret:"all" help:"API key with every right in this process, at least 24 characters. Empty on SQLite: one is made at the first start and written to DATA-DIR/admin.key. Required with PostgreSQL."`
	MasterKey []string `key:"master_key" group:"Keys" secret:"all" help:"Base64 of 32 bytes that encrypt stored secrets; a list to change it, the new one first. Empty on SQLite: one is made in DATA-DIR/master.key. Required with PostgreSQL."`

	RequestsPerSecond int `key:"requests_per_second" group:"Keys" default:"0" help:"Most requests of each API key a second in this process, answered with 429 beyond that. 0 is no limit."`

	PanGuard string `key:"pan_guard" group:"Keys" default:"off" help:"Card numbers: off, mask (bodies are shown without the middle of them) or reject (what has one is not accepted, and what is shown is masked)."`

	EgressAllow     []string      `key:"egress_allow" group:"Sending" help:"CIDRs and host names that may be sent to although they are not on the public internet."`
	EgressProxy     string        `key:"egress_proxy" group:"Sending" secret:"url" help:"Proxy for everything that is sent; not supported by this version."`
	Workers         int           `key:"workers" group:"Sending" default:"512" help:"Most attempts on the wire at once in this process."`
	LaneConcurrency int           `key:"lane_concurrency" group:"Sending" default:"32" help:"Most attempts in flight to one destination."`
	Horizon         time.Duration `key:"horizon" group:"Sending" default:"0s" help:"How far ahead callbacks are kept in an index on Redis, 2m or more: what is due later stays in SQL alone and is loaded when its time comes. 0s keeps the whole backlog there. The same for all processes."`
	Hold            bool          `key:"hold" group:"Sending" default:"false" help:"Start with sending stopped: callbacks are accepted, none is attempted, and an index on Redis that is not as SQL says is left as it is found, for the command verify."`

	Roles             []string      `key:"roles" group:"Life cycle" default:"api,ui,worker" help:"What this process does: any of api, ui and worker."`
	Migrate           bool          `key:"migrate" group:"Life cycle" default:"true" help:"Apply the SQL migrations at the start; --migrate=false leaves them to the command migrate."`
	ShutdownDelay     time.Duration `key:"shutdown_delay" group:"Life cycle" default:"0s" help:"How long the API stays open after SIGTERM, for load balancers to notice."`
	DrainTimeout      time.Duration `key:"drain_timeout" group:"Life cycle" default:"25s" help:"How long attempts in flight may go on after SIGTERM; the rest is handed back."`
	RetentionPayload  time.Duration `key:"retention_payload" group:"Life cycle" default:"30d" help:"How long the payloads of terminal callbacks are kept."`
	RetentionMetadata time.Duration `key:"retention_metadata" group:"Life cycle" default:"400d" help:"How long terminal callbacks and their attempts are kept, 7d or more: idempotency keys last that long."`

	LogFormat string `key:"log_format" group:"Logs" help:"Format of the log: text or json; empty is text on a terminal and json elsewhere."`
	LogLevel  string `key:"log_level" group:"Logs" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// A setting is one field of Settings.
type setting struct {
	field  int
	key    string
	def    string
	help   string
	group  string
	secret string
	kind   reflect.Type
}

// catalogue lists the settings in the order of their fields.
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
		}
	}
	return list
}

// envPrefix begins the name of every environment variable of the program; envFileSuffix ends those that name
// a file with the value.
const (
	EnvPrefix     = "DISPATCHER_"
	envFileSuffix = "_FILE"
)

func (s setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }
func (s setting) env() string  { return EnvPrefix + strings.ToUpper(s.key) }
func (s setting) isList() bool { return s.kind.Kind() == reflect.Slice }
func (s setting) isBool() bool { return s.kind.Kind() == reflect.Bool }

// placeholder is what stands for the value in help texts.
func (s setting) placeholder() string {
	switch s.kind {
	case reflect.TypeFor[time.Duration]():
		return "DURATION"
	case reflect.TypeFor[int]():
		return "N"
	case reflect.TypeFor[[]string]():
		return "LIST"
	}
	return "TEXT"
}

// sentence is the help with the default.
func (s setting) sentence() string {
	if s.def == "" {
		return s.help
	}
	return s.help + " Default: " + s.def + "."
}

// rawFlag is a flag's value as it was written, which is judged together with all other settings. given tells
// an empty value from none.
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

// rawSwitch is a rawFlag that may stand without a value: then it is true.
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

// Flags are the flags of a command that needs settings. Plugins holds one struct that is made from the
// catalogue.
type Flags struct {
	kong.Plugins
	File rawFlag `name:"config" placeholder:"FILE" help:"YAML file with settings. Flags are stronger than the environment (DISPATCHER_LISTEN for --listen, DISPATCHER_LISTEN_FILE to read it from a file), which is stronger than this file (listen:), which is stronger than the defaults."`
}

// AllFlags returns the flags of a command that takes every setting, storageFlags of one that takes those of
// the database and the log alone.
func AllFlags() Flags { return flagsOf(func(setting) bool { return true }) }
func StorageFlags() Flags {
	return flagsOf(func(s setting) bool { return s.group == "Storage" || s.group == "Logs" })
}

// flagsOf makes the flags of the chosen settings.
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

// structTag writes pairs of names and values as a struct tag.
func structTag(pairs ...string) reflect.StructTag {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(pairs[i] + `:"` + strings.ReplaceAll(pairs[i+1], `"`, `\"`) + `" `)
	}
	return reflect.StructTag(strings.TrimSpace(b.String()))
}

// given returns what was written for the setting on the command line.
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

// EmbeddedIn are the settings of a server that a command starts for itself: everything embedded in the
// directory, free ports, and the guard opened for this machine, where the command's receiver is. What the
// environment says about settings is about other servers and does not count here.
func EmbeddedIn(dir string) (*Settings, error) {
	l, err := LoadArgs(&console.Console{}, "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0",
		"--data-dir="+dir,
		"--egress-allow=127.0.0.1/32", "--drain-timeout=2s", "--log-level=warn")
	if err != nil {
		return nil, err
	}
	return &l.Settings, nil
}

// The files in the data directory that hold keys, and the prefix by which people know an API key.
const (
	AdminKeyFile  = "admin.key"
	MasterKeyFile = "master.key"
	APIKeyPrefix  = "dk_"
)

// NewAdminKey and newMasterKey make a key.
func NewAdminKey() string  { return APIKeyPrefix + randomText(24, base64.RawURLEncoding) }
func NewMasterKey() string { return randomText(MasterKeyBytes, base64.StdEncoding) }

// randomText returns n random bytes in the encoding.
func randomText(n int, encoding *base64.Encoding) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return encoding.EncodeToString(b)
}
