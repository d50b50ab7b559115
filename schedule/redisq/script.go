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

// constants are the numbers of package schedule that scripts use, by the names in the scripts. Times are in
// milliseconds.
var constants = map[string]int64{
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

// A script is the Lua file of one operation. The program reads its header: the first word is the operation's
// name, and KEYS, ARGV and EACH name the keys and arguments. The script's local variables, the keys that a
// call declares and the check of a call's arguments come from it.
type script struct {
	name string
	keys []string // names, as keyNames has them
	argv []string // arguments that every call has
	each []string // arguments of each element
	body string
	hash string
}

// loadScripts reads all scripts, by the names of their operations.
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

// loadScript reads a script. Before its text it puts the local variables of its header, the constants that it
// uses, and the files that its header includes.
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

var constantName = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

// locals returns Lua code that names the elements of KEYS and ARGV and defines the used constants.
func (s *script) locals(text string) string {
	var b strings.Builder
	for table, names := range map[string][]string{"KEYS": s.keys, "ARGV": s.argv} {
		fmt.Fprintf(&b, "local %s = unpack(%s, 1, %d)\n", strings.Join(names, ", "), table, len(names))
	}
	if len(s.each) > 0 {
		fmt.Fprintf(&b, "local FIRST, STRIDE = %d, %d\n", len(s.argv)+1, len(s.each))
	}
	used := constantName.FindAllString(text, -1)
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		if n, ok := constants[name]; ok {
			fmt.Fprintf(&b, "local %s = %d\n", name, n)
		}
	}
	return b.String()
}

// parseHeader reads the comment that opens a script: the first word as "Operation", and the lines of the form
// "-- NAME: word word". If a name has several lines, it gets the words of all of them.
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
			header[name] = append(header[name], strings.Fields(words)...)
		}
	}
	return header
}

var headerNames = []string{"KEYS", "ARGV", "EACH", "Reply", "Uses"}

// check returns an error if the arguments of a call do not match the header.
func (s *script) check(args []any) error {
	rest := len(args) - len(s.argv)
	if rest < 0 || len(s.each) == 0 && rest > 0 || len(s.each) > 0 && rest%len(s.each) != 0 {
		return fmt.Errorf("script %s: %d arguments, but its header has %d and %d for each element", s.name,
			len(args), len(s.argv), len(s.each))
	}
	return nil
}

// run sends the hash of the script, and the whole script if the server does not know it: after a restart, a
// failover or SCRIPT FLUSH, and once on each master of a Cluster. A claim is never repeated after an error
// that leaves open whether the server executed it (see sentOnce).
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

// send sends the script as one command, EVALSHA with its hash or EVAL with its text. The keys come first,
// because the client of a Cluster finds the node by the first key.
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
		send = sentOnce{cmd}
	}
	// Process returns the same error as the command has.
	if err := c.Process(ctx, send); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// sentOnce is a command that the client does not repeat after a network error, because the server may have
// executed it. The client still follows redirections, which mean that the server did not.
type sentOnce struct{ *redis.SliceCmd }

// NoRetry disables the client's retries.
func (sentOnce) NoRetry() bool { return true }
