package main

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	enumMarker = regexp.MustCompile(`(?m)^\s*\+enum\s*$`)
	sources    = importer.ForCompiler(token.NewFileSet(), "source", nil)
)

// Reads the values of a package's string types that are marked as enumerations, sorted, by the name of the type.
func readEnums(pkg string) map[string][]string {
	enums := markedTypes(folder(pkg))
	if len(enums) == 0 {
		return enums
	}
	checked, err := sources.Import(pkg)
	must(err)
	scope := checked.Scope()
	for _, name := range scope.Names() {
		found, ok := scope.Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		named, ok := found.Type().(*types.Named)
		if !ok || named.Obj().Pkg() != checked {
			continue
		}
		values, ok := enums[named.Obj().Name()]
		if !ok {
			continue
		}
		value := constant.StringVal(found.Val())
		if strings.ContainsAny(value, ",~") {
			panic(value)
		}
		if !slices.Contains(values, value) {
			enums[named.Obj().Name()] = append(values, value)
		}
	}
	for _, values := range enums {
		slices.Sort(values)
	}
	return enums
}

// Finds the types of a folder's package that are marked as enumerations.
func markedTypes(dir string) map[string][]string {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(err)
	set := token.NewFileSet()
	enums := map[string][]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		must(err)
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				kind, ok := spec.(*ast.TypeSpec)
				if ok && (enumMarker.MatchString(kind.Doc.Text()) || enumMarker.MatchString(group.Doc.Text())) {
					enums[kind.Name.Name] = []string{}
				}
			}
		}
	}
	return enums
}
