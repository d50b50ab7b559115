package ui

import (
	"go/ast"
	"go/parser"
	"go/token"
	stdhtml "html"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
)

// chinese returns the base of a page in Chinese.
func chinese(t *testing.T) *base {
	t.Helper()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	return &base{lang: all[1], zone: zoneChoice{"Asia/Shanghai", time.FixedZone("", 8*3600)}, now: testNow}
}

// reporters are the functions whose formats are shown to users: mistakes of requests, and why the guard or a
// parser refuses a value.
var reporters = regexp.MustCompile(`^(Add|add|Fail|fail|check|require|refuse|refusal|refuseSpec|refuseZone|` +
	`Invalid|invalid)$`)

// texters are files in which every error and every returned text is shown to users.
var texters = regexp.MustCompile(`sign/headers\.go|sign/secret\.go|outbound/checkurl\.go|` +
	`accept/policies\.go|schedule/tiers\.go|outbound/class\.go|sink/validate\.go|sink/config\.go|` +
	`alert/sink\.go`)

// engineSources are the packages whose texts pages show.
var engineSources = []string{
	"dispatch/accept", "dispatch/alert", "dispatch/attempt", "dispatch/control", "dispatch/outbound",
	"dispatch/outbound/sign", "dispatch/outbound/sink", "dispatch/outbound/internal/parse",
	"dispatch/outbound/rule", "schedule", "store/sqlstore", "web/query", "web/ui",
}

// notShown are texts of the same functions that no page shows.
var notShown = regexp.MustCompile(`^(preset policy|invalid signer|%w|put %s|delete %s|[A-Z][a-z]+: |` +
	`lane of next|time between|lane limit|number of|%s: |Another callback$|` +
	`encode the sink|test alert: |[x ]+$)`)

// TestEngineTextsAreTranslated finds formats in the engine's source that have no translation.
func TestEngineTextsAreTranslated(t *testing.T) {
	t.Parallel()
	b := chinese(t)
	found := 0
	for _, dir := range engineSources {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			// In the store, Add and fail build statements of SQL.
			builds := dir == "store/sqlstore"
			for _, format := range shownTexts(file, builds, texters.MatchString(filepath.ToSlash(name))) {
				if notShown.MatchString(format) {
					continue
				}
				found++
				if _, ok := b.translated(sampleOf(format), 0); !ok {
					t.Errorf("%s: no Chinese for %q", name, format)
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("%d texts are found: the test looks in the wrong places", found)
	}
}

// sampleOf fills a format with arguments.
func sampleOf(format string) string {
	return strings.NewReplacer("them %s.", "them at x.", "%d", "7", "%q", `"x"`, "%s", "x", "%v", "x",
		"%w", "x", "%%", "%").Replace(format)
}

// shownTexts returns the formats of a file that pages show. builds leaves out all reporters except invalid.
// all adds the file's errors and the texts it returns.
func shownTexts(file *ast.File, builds, all bool) (texts []string) {
	take := func(list ...ast.Expr) {
		for _, e := range list {
			if text, ok := literalText(e); ok && strings.Contains(strings.Trim(text, " "), " ") {
				texts = append(texts, text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
			case *ast.Ident:
				name = f.Name
			}
			if name == "invalid" || reporters.MatchString(name) && !builds ||
				all && (name == "Errorf" || name == "New") {
				take(n.Args...)
			}
		case *ast.KeyValueExpr:
			key, ok := n.Key.(*ast.Ident)
			if ok && slices.Contains([]string{"Message", "Detail", "Error", "text"}, key.Name) {
				take(n.Value)
			}
		case *ast.AssignStmt:
			if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Error" {
				take(n.Rhs...)
			}
		case *ast.ReturnStmt:
			if all {
				take(n.Results...)
			}
		}
		return true
	})
	return texts
}

// literalText returns the text of an expression of literals. Other parts of it become "x".
func literalText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := literalText(e.X)
		right, also := literalText(e.Y)
		if !ok {
			left = "x"
		}
		if !also {
			right = "x"
		}
		return left + right, (ok || also) && e.Op == token.ADD
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return literalText(e.Args[0])
		}
	}
	return "", false
}

// Every operator of a rule is described in Chinese, with quoted words and separators as data.
func TestRuleTextsAreTranslated(t *testing.T) {
	t.Parallel()
	b := chinese(t)
	for predicate, want := range map[string]string{
		`{"pointer": "/a", "eq": "x or y"}`:                               "/a 为 \"x or y\"",
		`{"pointer": "/a", "ne": 1}`:                                      "/a 不为 1",
		`{"pointer": "/a", "in": ["A", "B; C"]}`:                          "/a 为以下之一：\"A\", \"B; C\"",
		`{"pointer": "/a", "not_in": ["A"]}`:                              "/a 不为以下任何一个：\"A\"",
		`{"pointer": "/a", "exists": true}`:                               "/a 存在",
		`{"pointer": "/a", "exists": false}`:                              "/a 不存在",
		`{"pointer": "/a", "gt": 1}`:                                      "/a 大于 1",
		`{"pointer": "/a", "ge": 1}`:                                      "/a 不小于 1",
		`{"pointer": "/a", "lt": 1}`:                                      "/a 小于 1",
		`{"pointer": "/a", "le": 1}`:                                      "/a 不大于 1",
		`{"pointer": "/a", "matches": "^a"}`:                              "/a 匹配 \"^a\"",
		`{"status": [404]}`:                                               "状态码 404",
		`{"all": [{"pointer": "", "eq": 1}, {"pointer": "/b", "eq": 2}]}`: "应答正文为 1，且 /b 为 2",
	} {
		r, wrong := rule.CompilePoll([]byte(`{"until": {"success": [` + predicate +
			`, {"pointer": "/z", "eq": "Z"}]}}`))
		if len(wrong) > 0 {
			t.Fatal(predicate, wrong)
		}
		answer := &rule.Document{Status: 200, Text: []byte(`{"a": "b"}`), Seen: `"b"`}
		_, explained := r.Conclude("", answer, nil)
		got := plainText(string(b.Engine(explained.Expected)))
		if got != "成功："+want+`，或 /z 为 "Z"` {
			t.Errorf("%s: %s", explained.Expected, got)
		}
		if got := b.Engine(explained.Saw); strings.Contains(string(got), "untranslated") {
			t.Errorf("saw %s: %s", explained.Saw, got)
		}
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

func plainText(html string) string {
	return stdhtml.UnescapeString(tag.ReplaceAllString(html, ""))
}

func TestEngineTexts(t *testing.T) {
	t.Parallel()
	b := chinese(t)
	for text, want := range map[string]string{
		"The last 5 attempts in this lane got no HTTP response, the first of them at " +
			"2026-11-06T21:00:00.000Z. One attempt is made every 15s until the receiver responds.": "该通道最近 " +
			"5 次投递没有收到应答，首次发生在 05:00:00.000。恢复前每 15秒探测一次。",
		"Counted attempt 1 got status 503 (http_5xx). Waiting for the next attempt.": "第 1 次投递的状态码为 " +
			"503（服务器错误），等待下次投递。",
		"invalid: callback.url: is required; labels.a: is 257 characters; at most 256 are allowed": "无效：" +
			"callback.url 必填；labels.a 有 257 个字符，最多允许 256 个",
		"The lane is paused: <b>it moves</b>": "投递通道已暂停：<b>it moves</b>",
		"dial tcp: no luck":                   "技术详情：dial tcp: no luck",
		"/errcode is 0":                       "/errcode 为 0",
		"\"fail\"":                            "\"fail\"",
		"must be 10s to 7d":                   "须在 10秒 到 7天 之间",
		"must be 1 percent to 100 percent":    "须在 1% 到 100% 之间",
		"must begin with http:// or https:// and have a host": "须以 http:// 或 https:// 开头并有主机",
	} {
		if got := plainText(string(b.Engine(text))); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	for _, code := range control.BlockCodes {
		if !b.Has("why.title."+code) || !b.Has("why.cure."+code) {
			t.Errorf("the block %s has no texts", code)
		}
	}
}
