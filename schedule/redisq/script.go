package redisq

import (
	"context"
	"crypto/sha1" // the name that EVALSHA knows a script by
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua
var luaFiles embed.FS

// A script is one Lua file of an operation. Its header is not only read by people: it names the keys and arguments, and
// from it come the script's local variables, the keys that a call declares, and the check of a call's arguments.
type script struct {
	name string
	keys []string // names, as keyNames has them
	argv []string // arguments that every call has
	each []string // arguments of each element
	body string
	hash string
}

// loadScript reads a script, and puts before it the local variables of its header and the files that it uses.
func loadScript(name string) (*script, error) {
	text, err := luaFiles.ReadFile(path.Join("lua", name+".lua"))
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	header := parseHeader(string(text))
	s := &script{name: name, keys: header["KEYS"], argv: header["ARGV"], each: header["EACH"]}
	var b strings.Builder
	locals(&b, "KEYS", s.keys)
	locals(&b, "ARGV", s.argv)
	if len(s.each) > 0 {
		fmt.Fprintf(&b, "local FIRST, STRIDE = %d, %d\n", len(s.argv)+1, len(s.each))
	}
	for _, include := range header["Uses"] {
		part, err := luaFiles.ReadFile(path.Join("lua/include", include+".lua"))
		if err != nil {
			return nil, fmt.Errorf("script %s uses %s: %w", name, include, err)
		}
		b.Write(part)
	}
	b.Write(text)
	for _, key := range s.keys {
		if keyNames[key] == "" {
			return nil, fmt.Errorf("script %s names the unknown key %s", name, key)
		}
	}
	s.body = b.String()
	sum := sha1.Sum([]byte(s.body))
	s.hash = hex.EncodeToString(sum[:])
	return s, nil
}

// loadScripts reads every script, by name.
func loadScripts() (map[string]*script, error) {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		return nil, fmt.Errorf("list scripts: %w", err)
	}
	scripts := make(map[string]*script)
	for _, file := range files {
		name, isScript := strings.CutSuffix(file.Name(), ".lua")
		if !isScript {
			continue
		}
		if scripts[name], err = loadScript(name); err != nil {
			return nil, err
		}
	}
	return scripts, nil
}

// locals gives the elements of KEYS or ARGV their names.
func locals(b *strings.Builder, table string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "local %s = unpack(%s, 1, %d)\n", strings.Join(names, ", "), table, len(names))
}

// parseHeader reads the lines "-- NAME: word word" of the comment that opens a script.
func parseHeader(text string) map[string][]string {
	header := make(map[string][]string)
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "-- ")
		if !ok {
			break
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
		return fmt.Errorf("script %s: %d arguments, but its header has %d and %d for each element", s.name, len(args), len(s.argv), len(s.each))
	}
	return nil
}

// run sends the script by its hash, and whole where the server does not know it: after a restart, a failover, SCRIPT
// FLUSH, and once on each master of a Cluster. With once the client does not repeat it by itself on any error that
// leaves open whether it was executed.
func (s *script) run(ctx context.Context, c redis.UniversalClient, once bool, keys []string, args []any) ([]any, error) {
	if err := s.check(args); err != nil {
		return nil, err
	}
	reply, err := s.send(ctx, c, once, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.send(ctx, c, once, "eval", s.body, keys, args)
	}
	return reply, err
}

func (s *script) send(ctx context.Context, c redis.UniversalClient, once bool, command, body string, keys []string, args []any) ([]any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, body, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewSliceCmd(ctx, append(words, args...)...)
	cmd.SetFirstKeyPos(3)
	var send redis.Cmder = cmd
	if once {
		send = unrepeated{cmd}
	}
	// The command's own error is the same one; Process returns it.
	if err := c.Process(ctx, send); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// An unrepeated command is sent once: the client follows redirections, which say that it was not executed, but does
// not repeat it after an error of the network, which does not say so.
type unrepeated struct{ *redis.SliceCmd }

// NoRetry tells the client.
func (unrepeated) NoRetry() bool { return true }
