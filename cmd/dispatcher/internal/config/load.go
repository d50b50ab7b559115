package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// raw is the unparsed value of a setting and its origin.
type raw struct {
	// values has one element for each time the flag was given or for each element of a YAML sequence; else it
	// has one element.
	values []string
	// split: commas separate the elements of a list.
	split bool
	// origin is printed to users: "flag --redis-url", "environment DISPATCHER_REDIS_URL", "file d.yaml:3".
	origin string
}

// defaultOrigin is the origin of a setting that is not set anywhere.
const defaultOrigin = "default"

// loaded holds the settings and the origin of each value.
type loaded struct {
	Settings
	// origins maps a key to its origin.
	origins map[string]string
}

// problem is one wrong setting or one unknown name.
type problem struct {
	// key of the setting whose value cannot be used; empty for an unknown name.
	key string
	// message says what is wrong. If complete is set, it names the setting itself, and no prefix is added.
	message  string
	complete bool
}

// clientVariables returns the environment variables of the commands that talk to a server. They are no
// settings, and serve accepts them.
func clientVariables() []string {
	names := []string{"DISPATCHER_SERVER", "DISPATCHER_KEY", "DISPATCHER_KEY_FILE", "DISPATCHER_PROJECT"}
	return append(names, failpointVariables()...)
}

// Load reads the settings from flags, environment, file and defaults; the first of these that has a value
// wins. The error has one line for each problem.
func Load(c *console.Console, flags *Flags) (*loaded, error) {
	l, problems := readSettings(c, flags)
	return l, l.usageError(problems, l.check())
}

// LoadStorage is Load, but it checks only the settings of the database and the log.
func LoadStorage(c *console.Console, flags *Flags) (*loaded, error) {
	l, problems := readSettings(c, flags)
	return l, l.usageError(problems, l.checkStorage())
}

// LoadArgs is Load with the arguments of a command line.
func LoadArgs(c *console.Console, args ...string) (*loaded, error) {
	grammar := struct{ Flags }{AllFlags()}
	parser, err := kong.New(&grammar)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		return nil, err
	}
	return Load(c, &grammar.Flags)
}

// Problems checks settings that were not loaded from a command line. Its error has one line for each problem;
// nil if there is none.
func (s *Settings) Problems() error { return (&loaded{Settings: *s}).usageError(nil, s.check()) }

// readSettings reads all settings. A value that cannot be parsed becomes a problem, and the setting keeps its
// default.
func readSettings(c *console.Console, flags *Flags) (*loaded, []problem) {
	file, problems := readSettingsFile(c, flags)
	variables, found := readVariables(c)
	problems = append(problems, found...)

	l := &loaded{origins: map[string]string{}}
	target := reflect.ValueOf(&l.Settings).Elem()
	for _, s := range catalogue() {
		r := raw{values: []string{s.def}, split: true, origin: defaultOrigin}
		if flag := flags.given(s); flag.given {
			r = raw{values: flag.values, split: true, origin: "flag --" + s.flag()}
		} else if v, ok := variables[s.key]; ok {
			r = v
		} else if v, ok := file[s.key]; ok {
			r = v
		}
		l.origins[s.key] = r.origin
		if err := setField(target.Field(s.field), r); err != nil {
			problems = append(problems, problem{key: s.key, message: err.Error()})
			// Ignore the error: the tests load every default.
			_ = setField(target.Field(s.field), raw{values: []string{s.def}, split: true})
		}
	}
	return l, problems
}

// setField parses r into a field. Its errors do not contain the value of a text, because it may be a secret.
func setField(field reflect.Value, r raw) error {
	last := strings.TrimSpace(r.values[len(r.values)-1])
	switch field.Interface().(type) {
	case string:
		field.SetString(last)
	case int:
		n, err := strconv.Atoi(last)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", last)
		}
		field.SetInt(int64(n))
	case float64:
		n, err := strconv.ParseFloat(last, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", last)
		}
		field.SetFloat(n)
	case bool:
		on, err := strconv.ParseBool(last)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", last)
		}
		field.SetBool(on)
	case time.Duration:
		d, err := schedule.ParseDuration(last)
		if err != nil {
			return err
		}
		field.SetInt(int64(d))
	case []string:
		field.Set(reflect.ValueOf(elements(r)))
	default:
		return fmt.Errorf("settings of type %s cannot be read", field.Type())
	}
	return nil
}

// elements returns the elements of a list. Blank ones are left out.
func elements(r raw) []string {
	var list []string
	for _, value := range r.values {
		parts := []string{value}
		if r.split {
			parts = strings.Split(value, ",")
		}
		for _, part := range parts {
			part = strings.TrimSpace(part)
			if part != "" {
				list = append(list, part)
			}
		}
	}
	return list
}

// readVariables returns the settings in the environment. An empty variable counts as not set. An unknown
// variable with our prefix is a problem: it is probably misspelt.
func readVariables(c *console.Console) (map[string]raw, []problem) {
	keys := map[string]string{}
	for _, s := range catalogue() {
		keys[s.env()] = s.key
	}
	values := map[string]raw{}
	var problems []problem
	for _, name := range ownVariables(c) {
		value := c.Lookup(name)
		if key, ok := keys[name]; ok {
			if _, twice := values[key]; !twice {
				values[key] = raw{values: []string{value}, split: true, origin: "environment " + name}
			}
			continue
		}
		base, isFile := strings.CutSuffix(name, envFileSuffix)
		key, ok := keys[base]
		switch {
		case !isFile || !ok:
			problems = append(problems, problem{message: unknownVariable(name, keys), complete: true})
		case c.Lookup(base) != "":
			problems = append(problems, problem{key: key,
				message: fmt.Sprintf("%s and %s are both set; keep one of them", base, name), complete: true})
		default:
			text, err := ReadSecretFile(value)
			if err != nil {
				problems = append(problems, problem{key: key, message: fmt.Sprintf("%s: %s", name, err),
					complete: true})
				continue
			}
			values[key] = raw{values: []string{text}, split: true,
				origin: fmt.Sprintf("environment %s (%s)", name, value)}
		}
	}
	for _, s := range catalogue() {
		if _, own := values[s.key]; s.variable != "" && !own && c.Lookup(s.variable) != "" {
			values[s.key] = raw{values: []string{c.Lookup(s.variable)}, split: true,
				origin: "environment " + s.variable}
		}
	}
	return values, problems
}

// serviceLink matches the variables that Kubernetes adds to every container in the namespace of a Service
// named dispatcher. They are no settings and no mistake.
var serviceLink = regexp.MustCompile(`^DISPATCHER_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_.+)?)$`)

// ownVariables returns the sorted names of the variables that are set and have our prefix. It leaves out
// those of other commands and of Kubernetes.
func ownVariables(c *console.Console) []string {
	names := map[string]bool{}
	for _, pair := range c.Env {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, EnvPrefix) && c.Lookup(name) != "" && !serviceLink.MatchString(name) {
			names[name] = true
		}
	}
	delete(names, configVariable)
	for _, name := range clientVariables() {
		delete(names, name)
	}
	return slices.Sorted(maps.Keys(names))
}

func unknownVariable(name string, keys map[string]string) string {
	line := "unknown environment variable " + name
	if best := nearest(name, slices.Sorted(maps.Keys(keys))); best != "" {
		line += "; did you mean " + best + "?"
	}
	return line
}

// ReadSecretFile returns the content of a file without its trailing newline. An empty file is an error.
func ReadSecretFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", console.CannotRead(path, err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

// nearest returns the candidate that is most similar to a misspelt name, or "" if none is similar.
func nearest(name string, candidates []string) string {
	best, least := "", 4
	for _, candidate := range candidates {
		if d := editDistance(name, candidate); d < least && d < len(name)/2 {
			best, least = candidate, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of two names in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			previous, row[j+1] = row[j+1], min(previous+cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// usageError returns the problems as the error that ends the start, one line each, or nil. A setting that
// could not be parsed has its default by now, so problems that the checks found in it are left out.
func (l *loaded) usageError(unparsed, checked []problem) error {
	e, broken := &console.UsageError{}, map[string]bool{}
	for _, p := range unparsed {
		broken[p.key] = true
		e.Lines = append(e.Lines, l.line(p))
	}
	for _, p := range checked {
		if !broken[p.key] {
			e.Lines = append(e.Lines, l.line(p))
		}
	}
	if len(e.Lines) == 0 {
		return nil
	}
	return e
}

// line returns a problem as one line for the user.
func (l *loaded) line(p problem) string {
	if p.complete {
		return p.message
	}
	line := fmt.Sprintf("setting %s: %s", p.key, p.message)
	if origin := l.origins[p.key]; origin != defaultOrigin && origin != "" {
		line += " (from " + origin + ")"
	}
	return line
}
