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

// A raw is a setting as it was written, and where.
type raw struct {
	// values has one element, or one for each element of a list that was written as one.
	values []string
	// split says that commas separate the elements of a list.
	split bool
	// origin is for people: "flag --redis-url", "environment DISPATCHER_REDIS_URL", "file d.yaml:3".
	origin string
}

// defaultOrigin is the origin of a setting that nobody set.
const defaultOrigin = "default"

// loaded are settings with the places that their values came from.
type loaded struct {
	Settings
	// origins by key.
	origins map[string]string
}

// A problem is what is wrong with one setting, or with a name that is none.
type problem struct {
	// key of the setting that has no value because of it; empty for a name that is no setting.
	key string
	// message says what is wrong; whole ones say by themselves which setting they are about.
	message string
	whole   bool
}

// clientVariables are environment variables of the program that are no settings: the commands that talk to a
// server read them, and serve must not stumble over them.
func clientVariables() []string {
	names := []string{"DISPATCHER_SERVER", "DISPATCHER_KEY", "DISPATCHER_KEY_FILE", "DISPATCHER_PROJECT"}
	return append(names, failpointVariables()...)
}

// Load reads the settings from flags, environment, file and defaults, in this order of strength. Its error
// has one line for each thing that is wrong.
func Load(c *console.Console, flags *Flags) (*loaded, error) {
	l, problems := readSettings(c, flags)
	return l, l.judge(problems, l.check())
}

// LoadStorage is Load, but checks the settings of the database and the log alone.
func LoadStorage(c *console.Console, flags *Flags) (*loaded, error) {
	l, problems := readSettings(c, flags)
	return l, l.judge(problems, l.checkStorage())
}

// LoadArgs is Load with flags as they are written on a command line.
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

// Problems is the error with one line for each thing that is wrong with the settings, or nil.
func (s *Settings) Problems() error { return (&loaded{Settings: *s}).judge(nil, s.check()) }

// readSettings reads the settings. What cannot be read is in the problems, and has its default instead.
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
			// A default can always be read: a test holds them to it.
			_ = setField(target.Field(s.field), raw{values: []string{s.def}, split: true})
		}
	}
	return l, problems
}

// setField gives a field the value that was written. Its errors do not show the value of a text: it may be a
// secret.
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

// elements returns the elements of a list, without empty ones.
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

// readVariables returns what the environment says about settings. An empty variable counts as not set. A
// variable that begins like ours and names no setting is a problem: it is most likely misspelt.
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
			problems = append(problems, problem{message: unknownVariable(name, keys), whole: true})
		case c.Lookup(base) != "":
			problems = append(problems, problem{key: key,
				message: fmt.Sprintf("%s and %s are both set; keep one of them", base, name), whole: true})
		default:
			text, err := ReadSecretFile(value)
			if err != nil {
				problems = append(problems, problem{key: key, message: fmt.Sprintf("%s: %s", name, err),
					whole: true})
				continue
			}
			values[key] = raw{values: []string{text}, split: true,
				origin: fmt.Sprintf("environment %s (%s)", name, value)}
		}
	}
	return values, problems
}

// serviceLink matches what Kubernetes puts into every container of a namespace that has a Service named
// dispatcher. None of it is a setting, and none of it is anybody's mistake.
var serviceLink = regexp.MustCompile(`^DISPATCHER_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_.+)?)$`)

// ownVariables returns the names, sorted, of the set variables that begin like ours, without those of other
// commands.
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

// ReadSecretFile returns the content of a file without its trailing newline.
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

// nearest returns the candidate that name is most likely a slip of, or nothing.
func nearest(name string, candidates []string) string {
	best, least := "", 4
	for _, candidate := range candidates {
		if d := editDistance(name, candidate); d < least && d < len(name)/2 {
			best, least = candidate, d
		}
	}
	return best
}

// editDistance counts the single-byte changes between two names.
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

// judge turns what is wrong into the error that ends the start, one line each, or nil. The check's findings
// about settings that could not even be read are left out: they would be about values that nobody wrote.
func (l *loaded) judge(unread, checked []problem) error {
	e, broken := &console.UsageError{}, map[string]bool{}
	for _, p := range unread {
		broken[p.key] = true
		e.Lines = append(e.Lines, l.sentence(p))
	}
	for _, p := range checked {
		if !broken[p.key] {
			e.Lines = append(e.Lines, l.sentence(p))
		}
	}
	if len(e.Lines) == 0 {
		return nil
	}
	return e
}

// sentence is the line for a problem.
func (l *loaded) sentence(p problem) string {
	if p.whole {
		return p.message
	}
	line := fmt.Sprintf("setting %s: %s", p.key, p.message)
	if origin := l.origins[p.key]; origin != defaultOrigin && origin != "" {
		line += " (from " + origin + ")"
	}
	return line
}
