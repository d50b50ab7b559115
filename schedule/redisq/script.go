package redisq

import (
	"context"
	"crypto/sha1" // the name that EVALSHA knows a script by
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

//go:embed lua
var luaFiles embed.FS

// numbers are the names that scripts have for what package schedule decides, in milliseconds where it is a
// time.
var numbers = map[string]int64{
	"QUANTUM":           schedule.Quantum,
	"MAX_PROMOTE":       schedule.MaxPromote,
	"MAX_REAP":          schedule.MaxReap,
	"MAX_OWNERS":        schedule.MaxOwners,
	"MAX_NEXT_HOLDERS":  schedule.MaxNextHolders,
	"FRESH_SHARE":       schedule.FreshShare,
	"START_CONCURRENCY": schedule.StartConcurrency,
	"BREAKER_ATTEMPTS":  schedule.BreakerAttempts,
	"BREAKER_SPAN":      schedule.BreakerSpan.Milliseconds(),
	"BREAKER_REST":      schedule.BreakerRest.Milliseconds(),
	"PROBE_SPREAD":      schedule.ProbeSpread,
	"PROBE_GOLDEN":      schedule.ProbeGolden,
	"REAP_SPREAD":       schedule.ReapSpread,
	"TOKEN_STEP":        schedule.TokenStep.Milliseconds(),
	"CATCH_UP":          schedule.CatchUp.Milliseconds(),
	"STEP_BACK":         schedule.StepBack.Milliseconds(),
	"CLOCK_GAP":         schedule.ClockGap.Milliseconds(),
	"MIN_HORIZON":       schedule.MinHorizon.Milliseconds(),
	"KEEP_FOR_WAITER":   schedule.KeepForWaiter.Milliseconds(),
}

// A script is one Lua file of an operation. Its header is not only read by people: it begins with the
// operation's name, and names the keys and arguments. From it come the script's local variables, the keys
// that a call declares, and the check of a call's arguments.
type script struct {
	name string
	keys []string // names, as keyNames has them
	argv []string // arguments that every call has
	each []string // arguments of each element
	body string
	hash string
}

// loadScripts reads every script, by the name of its operation.
func loadScripts() (map[string]*script, error) {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	scripts := make(map[string]*script)
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		s, err := loadScript(file.Name())
		if err != nil {
			return nil, err
		}
		scripts[s.name] = s
	}
	return scripts, nil
}

// loadScript reads a script, and puts before it the local variables of its header, the numbers that occur in
// it, and the files that it uses.
func loadScript(file string) (*script, error) {
	text, err := luaFiles.ReadFile(path.Join("lua", file))
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", file, err)
	}
	header := parseHeader(string(text))
	s := &script{name: header["Operation"][0], keys: header["KEYS"], argv: header["ARGV"],
		each: header["EACH"]}
	var parts strings.Builder
	for _, include := range header["Uses"] {
		part, err := luaFiles.ReadFile(path.Join("lua/include", include+".lua"))
		if err != nil {
			return nil, fmt.Errorf("script %s uses %s: %w", file, include, err)
		}
		parts.Write(part)
	}
	parts.Write(text)
	for _, key := range s.keys {
		if keyNames[key] == "" {
			return nil, fmt.Errorf("script %s names the unknown key %s", file, key)
		}
	}
	s.setBody(s.locals(parts.String()) + parts.String())
	return s, nil
}

func (s *script) setBody(body string) {
	sum := sha1.Sum([]byte(body))
	s.body, s.hash = body, hex.EncodeToString(sum[:])
}

var constant = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

// locals gives the elements of KEYS and ARGV their names, and the numbers that the text uses.
func (s *script) locals(text string) string {
	var b strings.Builder
	for table, names := range map[string][]string{"KEYS": s.keys, "ARGV": s.argv} {
		fmt.Fprintf(&b, "local %s = unpack(%s, 1, %d)\n", strings.Join(names, ", "), table, len(names))
	}
	if len(s.each) > 0 {
		fmt.Fprintf(&b, "local FIRST, STRIDE = %d, %d\n", len(s.argv)+1, len(s.each))
	}
	used := constant.FindAllString(text, -1)
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		if n, ok := numbers[name]; ok {
			fmt.Fprintf(&b, "local %s = %d\n", name, n)
		}
	}
	return b.String()
}

// parseHeader reads the comment that opens a script: the first word as "Operation", and the lines "-- NAME:
// word word".
func parseHeader(text string) map[string][]string {
	header := make(map[string][]string)
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "-- ")
		if !ok {
			break
		}
		if len(header) == 0 {
			name, _, _ := strings.Cut(line, " ")
			header["Operation"] = []string{name}
		}
		if name, words, found := strings.Cut(line, ":"); found && slices.Contains(headerNames, name) {
			header[name] = strings.Fields(words)
		}
	}
	return header
}

var headerNames = []string{"KEYS", "ARGV", "EACH", "Reply", "Uses"}

// check refuses a call whose arguments are not what the header says.
func (s *script) check(args []any) error {
	rest := len(args) - len(s.argv)
	if rest < 0 || len(s.each) == 0 && rest > 0 || len(s.each) > 0 && rest%len(s.each) != 0 {
		return fmt.Errorf("script %s: %d arguments, but its header has %d and %d for each element", s.name,
			len(args), len(s.argv), len(s.each))
	}
	return nil
}

// run sends the script by its hash, and whole where the server does not know it: after a restart, a failover,
// SCRIPT FLUSH, and once on each master of a Cluster. The client does not repeat a claim by itself on any
// error that leaves open whether it was executed.
func (s *script) run(ctx context.Context, c redis.UniversalClient, keys shardKeys,
	args []any) ([]any, error) {
	if err := s.check(args); err != nil {
		return nil, err
	}
	reply, err := s.send(ctx, c, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.send(ctx, c, "eval", s.body, keys, args)
	}
	return reply, err
}

func (s *script) send(ctx context.Context, c redis.UniversalClient, command, body string, keys shardKeys,
	args []any) ([]any, error) {
	words := append(make([]any, 0, 3+len(s.keys)+len(args)), command, body, len(s.keys))
	for _, name := range s.keys {
		words = append(words, keys.named(name))
	}
	cmd := redis.NewSliceCmd(ctx, append(words, args...)...)
	cmd.SetFirstKeyPos(3)
	var send redis.Cmder = cmd
	if s.name == "claim" {
		send = unrepeated{cmd}
	}
	// The command's own error is the same one; Process returns it.
	if err := c.Process(ctx, send); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// An unrepeated command is sent once: the client follows redirections, which say that it was not executed,
// but does not repeat it after an error of the network, which does not say so.
type unrepeated struct{ *redis.SliceCmd }

// NoRetry tells the client.
func (unrepeated) NoRetry() bool { return true }
