package parse

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// FuzzCharset checks that a text in a known encoding becomes UTF-8 and that UTF-8 stays unchanged except for
// its mark.
func FuzzCharset(f *testing.F) {
	gbk, err := simplifiedchinese.GBK.NewEncoder().Bytes([]byte("成功"))
	if err != nil {
		f.Fatal(err)
	}
	for _, contentType := range []string{
		"text/plain; charset=GBK", `text/xml; charset="gb18030"`, "text/plain", "a;charset=utf-8",
		"charset=x-gbk;",
	} {
		for _, body := range []string{
			"success", "\xef\xbb\xbfok", string(gbk), "成功",
			"<?xml version='1.0' encoding='gbk'?>" + string(gbk), "\xff\xfe", "\x81",
		} {
			f.Add(contentType, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		text, ok := UTF8(contentType, body)
		if rest, marked := bytes.CutPrefix(body, []byte(byteOrderMark)); marked || IsASCII(body) {
			if !ok || !bytes.Equal(text, rest) {
				t.Errorf("%q is read as %q, %t", body, text, ok)
			}
			return
		}
		declared := charsetParameter(contentType)
		if declared == "" {
			declared = DeclaredEncoding(body)
		}
		known := slices.Contains([]string{"gbk", "gb2312", "gb18030", "cp936", "x-gbk"},
			strings.ToLower(declared))
		if known && ok && !utf8.Valid(text) {
			t.Errorf("%q, which is %s, becomes %q", body, declared, text)
		}
		if !known && !bytes.Equal(text, body) {
			t.Errorf("%q, which is %q, becomes %q", body, declared, text)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCache[int, int](3)
	for i := range 10 {
		c.Put(i, i)
		if got, ok := c.Get(i); !ok || got != i || len(c.m) > 3 {
			t.Errorf("%d: %d, %v; %d entries", i, got, ok, len(c.m))
		}
	}
}
