package cmdtest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// Transcripts runs the files testdata/*.txt: commands against a server with fixed responses, and their
// results. Each file runs in virtual time from 2026-11-22 on. With -update, the results are written again. A
// line is one of
//
//	# a comment
//	let NAME [FROM]               define $NAME as the JSON below, merged into $FROM
//	answer METHOD PATH [STATUS]   the server responds with the text below, unquoted if it is quoted;
//	                              PATH can have a query
//	then [STATUS]                 the next response to the same request; the last one repeats
//	file NAME                     write the text below to $DIR/NAME
//	cat NAME                      print $DIR/NAME as results
//	env NAME=VALUE …              variables of the next command
//	in                            the text below is the standard input of the next command
//	terminal                      the next command writes to a terminal
//	$ ARGUMENT …                  a command, with 'quotes' as in a shell
//	> METHOD URI [BODY]           a result: a request
//	| TEXT                        a result: a line of the standard output; quoted if it is not printable
//	! TEXT                        a result: a line of the error output
//	exit CODE                     a result, unless it is 0
//
// The text below a line is indented by two spaces. «x*9» is nine times x, «\r» a carriage return. The objects
// of testdata/fixtures.json are defined at the start.
func (p Program) Transcripts(t *testing.T, env ...string) {
	t.Helper()
	transcript.Files(t, "testdata/*.txt", func(t *testing.T, text string) string {
		s := &script{
			t: t, program: p, env: env, lets: map[string]string{"DIR": t.TempDir()},
			answers: map[string][]answer{},
		}
		if text, err := os.ReadFile("testdata/fixtures.json"); err == nil {
			var fixtures map[string]json.RawMessage
			if err := json.Unmarshal(text, &fixtures); err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Sorted(maps.Keys(fixtures)) {
				value := string(fixtures[name])
				if text, err := strconv.Unquote(value); err == nil {
					value = text
				}
				s.lets[name] = s.expand(value)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			s.t = t
			time.Sleep(time.Until(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)))
			s.run(strings.Split(strings.TrimSuffix(text, "\n"), "\n"))
		})
		return s.out.String()
	})
}

// script is a running transcript.
type script struct {
	t       *testing.T
	program Program
	env     []string
	out     strings.Builder
	lets    map[string]string
	answers map[string][]answer
	last    string // key of the last answer
	// next is the environment of the next command.
	next struct {
		env      []string
		in       string
		terminal bool
	}
}

// answer is a response of the server.
type answer struct {
	status int
	text   string
}

func (s *script) expand(text string) string {
	return os.Expand(transcript.Expand(s.t, text), func(name string) string {
		value, ok := s.lets[name]
		if !ok {
			s.t.Errorf("$%s is not defined", name)
		}
		return value
	})
}

func (s *script) run(lines []string) {
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		word, rest, _ := strings.Cut(line, " ")
		if strings.ContainsAny(word[:min(1, len(word))], ">|!") || word == "exit" {
			continue // a result
		}
		s.out.WriteString(line + "\n")
		first := i
		for i < len(lines) && strings.HasPrefix(lines[i], "  ") {
			s.out.WriteString(lines[i] + "\n")
			i++
		}
		below := s.expand(strings.ReplaceAll("\n"+strings.Join(lines[first:i], "\n"), "\n  ", "\n")[1:])
		names := strings.Fields(rest)
		switch word {
		case "", "#":
		case "let":
			s.lets[names[0]] = below
			if len(names) > 1 {
				s.lets[names[0]] = With(s.t, s.lets[names[1]], below)
			}
		case "answer":
			s.last = s.expand(strings.Join(names[:2], " "))
			s.answers[s.last] = nil
			s.answer(names[2:], below)
		case "then":
			s.answer(names, below)
		case "file":
			err := os.WriteFile(filepath.Join(s.lets["DIR"], rest), []byte(below+"\n"), 0o600)
			if err != nil {
				s.t.Error(err)
			}
		case "cat":
			text, err := os.ReadFile(filepath.Join(s.lets["DIR"], rest))
			if err != nil {
				s.t.Error(err)
			}
			s.results("|", string(text))
		case "env":
			s.next.env = strings.Fields(s.expand(rest))
		case "in":
			s.next.in = below + "\n"
		case "terminal":
			s.next.terminal = true
		case "$":
			s.command(Arguments(s.expand(rest)))
		default:
			s.t.Errorf("not a line of a transcript: %s", line)
		}
	}
}

func (s *script) answer(status []string, text string) {
	a := answer{http.StatusOK, text}
	if len(status) > 0 {
		a.status, _ = strconv.Atoi(status[0])
	}
	if plain, err := strconv.Unquote(text); err == nil {
		a.text = plain
	}
	s.answers[s.last] = append(s.answers[s.last], a)
}

// command runs a command and writes its results.
func (s *script) command(args []string) {
	term := s.program.Terminal(slices.Concat(s.env, s.next.env)...)
	term.In, term.OutTerminal = strings.NewReader(s.next.in), s.next.terminal
	term.Transport = testserver.InProcess{Handler: http.HandlerFunc(s.serve)}
	s.next.env, s.next.in, s.next.terminal = nil, "", false
	code := term.InvokeUntil(s.t.Context(), args...)
	s.results("|", term.Stdout.String())
	s.results("!", term.Stderr.String())
	if code != 0 {
		s.out.WriteString("exit " + strconv.Itoa(code) + "\n")
	}
}

// results writes the lines of a text, each after a mark. A secret in a transcript contains "hidden", and must
// not be in a result.
func (s *script) results(mark, text string) {
	if strings.Contains(text, "hidden") {
		s.t.Errorf("a secret is in the output: %s", text)
	}
	for line := range strings.Lines(strings.ReplaceAll(text, s.lets["DIR"], "$DIR")) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, unicode.IsControl) {
			line = strconv.Quote(line)
		}
		s.out.WriteString(strings.TrimRight(mark+" "+line, " ") + "\n")
	}
}

// serve records a request and responds.
func (s *script) serve(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
	}
	line := "> " + r.Method + " " + r.URL.RequestURI() + " " + strings.ReplaceAll(string(body), "\n", `\n`)
	for _, header := range []string{"Dispatcher-Project", "Authorization"} {
		if value := r.Header.Get(header); value != "" && value != "Bearer k" {
			line += " " + header + ": " + value
		}
	}
	s.out.WriteString(strings.TrimRight(line, " ") + "\n")
	for _, key := range []string{r.Method + " " + r.URL.RequestURI(), r.Method + " " + r.URL.Path} {
		if list := s.answers[key]; len(list) > 0 {
			if len(list) > 1 {
				s.answers[key] = list[1:]
			}
			w.WriteHeader(list[0].status)
			Respond(s.t, w, list[0].text)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	Respond(s.t, w, `{"title":"Not Found","status":404,`+
		`"detail":"not found; check the id and the project","code":"not_found"}`)
}

// Arguments splits a line at spaces that are not in single quotes.
func Arguments(line string) (list []string) {
	begun, quoted := false, false
	for _, r := range line {
		if r == ' ' && !quoted {
			begun = false
			continue
		}
		if !begun {
			list, begun = append(list, ""), true
		}
		if r == '\'' {
			quoted = !quoted
		} else {
			list[len(list)-1] += string(r)
		}
	}
	return list
}

// With returns a JSON object with the members of another one added or replaced.
func With(t *testing.T, object, members string) string {
	t.Helper()
	var m map[string]json.RawMessage
	for _, text := range []string{object, members} {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
