#include "python/extension/guard_object.h"

#include <memory>
#include <vector>

namespace kernwright::python {
namespace {

/// One value of a dict. PyDict_Next() finds it by its place, which costs a fifth of a look-up.
struct GuardedEntry {
  Py_ssize_t place;
  PyObject* key;    ///< owned
  PyObject* value;  ///< owned: the value, or its type where `kind`
  bool kind;
};

struct GuardedDict {
  PyObject* dict;   ///< owned where it is not the root
  Py_ssize_t size;  ///< -1: other keys may come and go
  Py_ssize_t end;   ///< no entry has a place from here on
  std::vector<GuardedEntry> entries;
};

struct GuardedList {
  PyObject* list;                ///< owned
  std::vector<PyObject*> items;  ///< owned
};

struct GuardedAttribute {
  PyObject *owner, *name, *value;  ///< owned
};

struct GuardState {
  PyObject* root = nullptr;  ///< not owned
  std::vector<GuardedDict> dicts;
  std::vector<GuardedList> lists;
  std::vector<GuardedAttribute> types;  ///< without a name
  std::vector<GuardedAttribute> attributes;

  GuardState() = default;
  GuardState(const GuardState&) = delete;
  GuardState& operator=(const GuardState&) = delete;
  ~GuardState() {
    visit([](PyObject* object) {
      drop(object);
      return 0;
    });
  }

  /// Calls `each` on all that is owned, up to the first that it does not give 0 for.
  template <typename Each>
  int visit(const Each& each) const {
    for (const GuardedDict& watched : dicts) {
      if (watched.dict != root) {
        if (const int status = each(watched.dict); status != 0) return status;
      }
      for (const GuardedEntry& entry : watched.entries) {
        if (const int status = each(entry.key); status != 0) return status;
        if (const int status = each(entry.value); status != 0) return status;
      }
    }
    for (const GuardedList& watched : lists) {
      if (const int status = each(watched.list); status != 0) return status;
      for (PyObject* item : watched.items) {
        if (const int status = each(item); status != 0) return status;
      }
    }
    for (const auto* list : {&types, &attributes}) {
      for (const GuardedAttribute& attribute : *list) {
        for (PyObject* object : {attribute.owner, attribute.name, attribute.value}) {
          if (object == nullptr) continue;
          if (const int status = each(object); status != 0) return status;
        }
      }
    }
    return 0;
  }
};

struct GuardObject {
  PyObject_HEAD GuardState* state;
};

GuardState& guard_state_of(PyObject* self) { return *reinterpret_cast<GuardObject*>(self)->state; }

PyObject* type_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }

bool is_unchanged(const GuardedDict& watched) {
  if (watched.size >= 0 && PyDict_Size(watched.dict) != watched.size) return false;
  PyObject *key = nullptr, *value = nullptr;
  for (const GuardedEntry& entry : watched.entries) {
    Py_ssize_t place = entry.place;
    if (PyDict_Next(watched.dict, &place, &key, &value) == 0 || key != entry.key ||
        (entry.kind ? type_of(value) : value) != entry.value) {
      return false;
    }
  }
  if (watched.size <= 0) return true;
  Py_ssize_t place = watched.end;
  return PyDict_Next(watched.dict, &place, &key, &value) == 0;
}

bool is_unchanged(const GuardedList& watched) {
  const auto size = static_cast<std::size_t>(PyList_Size(watched.list));
  if (size != watched.items.size()) return false;
  for (std::size_t i = 0; i < size; ++i) {
    if (PyList_GetItem(watched.list, static_cast<Py_ssize_t>(i)) != watched.items[i]) return false;
  }
  return true;
}

/// -1 with a Python error set.
int guard_check(const GuardState& state, PyObject* root) {
  if (root != state.root) return 0;
  for (const GuardedAttribute& type : state.types) {
    if (type_of(type.owner) != type.value) return 0;
  }
  for (const GuardedDict& watched : state.dicts) {
    if (!is_unchanged(watched)) return 0;
  }
  for (const GuardedList& watched : state.lists) {
    if (!is_unchanged(watched)) return 0;
  }
  for (const GuardedAttribute& attribute : state.attributes) {
    const Ref now(PyObject_GetAttr(attribute.owner, attribute.name));
    if (!now && PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return -1;
    PyErr_Clear();
    if (now.get() != attribute.value) return 0;
  }
  return 1;
}

PyObject* guard_holds(PyObject* self, PyObject* root) {
  const int result = guard_check(guard_state_of(self), root);
  return result < 0 ? nullptr : PyBool_FromLong(result);
}

/// A copy of a module looks again.
PyObject* guard_copy(PyObject*, PyObject*) { Py_RETURN_NONE; }

PyObject* guard_reduce(PyObject*, PyObject*) {
  return Py_BuildValue("(O())", reinterpret_cast<PyObject*>(Py_TYPE(Py_None)));
}

int guard_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const GuardState* state = reinterpret_cast<GuardObject*>(self)->state;
  if (state == nullptr) return 0;
  return state->visit([&](PyObject* object) { return visit(object, arg); });
}

int guard_clear(PyObject* self) {
  delete std::exchange(reinterpret_cast<GuardObject*>(self)->state, new GuardState());
  return 0;
}

void guard_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<GuardObject*>(self)->state;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMethodDef kGuardMethods[] = {{"holds", method<guard_holds>(), METH_O,
                                "holds($self, root, /)\n--\n\nWhether all is as it was recorded."},
                               {"__copy__", method<guard_copy>(), METH_NOARGS, nullptr},
                               {"__deepcopy__", method<guard_copy>(), METH_O, nullptr},
                               {"__reduce__", method<guard_reduce>(), METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};

PyType_Slot kGuardSlots[] = {
    {Py_tp_doc, const_cast<char*>("A record of what something was decided from.")},
    {Py_tp_traverse, reinterpret_cast<void*>(guard_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(guard_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(guard_dealloc)},
    {Py_tp_methods, kGuardMethods},
    {0, nullptr}};

PyType_Spec kGuardSpec = {"kernwright._kernwright.Guard", sizeof(GuardObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kGuardSlots};

PyTypeObject* guard_type = nullptr;  // guarded by the GIL

PyObject* new_reference(PyObject* object) {
  Py_INCREF(object);
  return object;
}

/// Records the entries of `watched` that `keys` and `kinds` name, and the place behind the last.
/// False with a Python error set.
bool record_entries(GuardedDict& watched, PyObject* keys, PyObject* kinds) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t place = 0;
  for (Py_ssize_t before = 0; PyDict_Next(watched.dict, &place, &key, &value) != 0;
       before = place) {
    const int same = PySet_Contains(keys, key);
    const int kind = same == 0 ? PySet_Contains(kinds, key) : 0;
    if (same < 0 || kind < 0) return false;
    if (same == 0 && kind == 0) continue;
    watched.entries.push_back(
        {before, new_reference(key), new_reference(kind != 0 ? type_of(value) : value), kind != 0});
  }
  watched.end = place;
  return true;
}

bool record_dicts(GuardState& state, PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    PyObject *dict = nullptr, *keys = nullptr, *kinds = nullptr;
    int whole = 0;
    if (PyArg_ParseTuple(PyList_GetItem(list, i), "O!OOp", &PyDict_Type, &dict, &keys, &kinds,
                         &whole) == 0) {
      return false;
    }
    state.dicts.push_back({dict == state.root ? dict : new_reference(dict),
                           whole != 0 ? PyDict_Size(dict) : -1,
                           0,
                           {}});
    if (!record_entries(state.dicts.back(), keys, kinds)) return false;
  }
  return true;
}

bool record_lists(GuardState& state, PyObject* lists) {
  for (Py_ssize_t i = 0; i < PyList_Size(lists); ++i) {
    PyObject* list = PyList_GetItem(lists, i);
    if (PyList_Check(list) == 0) {
      PyErr_Format(PyExc_TypeError, "%R, and a list expected", Py_TYPE(list));
      return false;
    }
    state.lists.push_back({new_reference(list), {}});
    for (Py_ssize_t j = 0; j < PyList_Size(list); ++j) {
      state.lists.back().items.push_back(new_reference(PyList_GetItem(list, j)));
    }
  }
  return true;
}

}  // namespace

PyObject* make_guard(PyObject*, PyObject* given) {
  PyObject *root = nullptr, *dicts = nullptr, *lists = nullptr;
  PyObject *types = nullptr, *attributes = nullptr;
  if (PyArg_ParseTuple(given, "O!O!O!O!O!", &PyDict_Type, &root, &PyList_Type, &dicts, &PyList_Type,
                       &lists, &PyList_Type, &types, &PyList_Type, &attributes) == 0) {
    return nullptr;
  }
  auto state = std::make_unique<GuardState>();
  state->root = root;
  if (!record_dicts(*state, dicts)) return nullptr;
  if (!record_lists(*state, lists)) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_Size(types); ++i) {
    PyObject *owner = nullptr, *type = nullptr;
    if (PyArg_ParseTuple(PyList_GetItem(types, i), "OO", &owner, &type) == 0) return nullptr;
    state->types.push_back({new_reference(owner), nullptr, new_reference(type)});
  }
  for (Py_ssize_t i = 0; i < PyList_Size(attributes); ++i) {
    PyObject *owner = nullptr, *name = nullptr, *value = nullptr;
    if (PyArg_ParseTuple(PyList_GetItem(attributes, i), "OUO", &owner, &name, &value) == 0) {
      return nullptr;
    }
    state->attributes.push_back({new_reference(owner), new_reference(name), new_reference(value)});
  }
  GuardObject* guard = PyObject_GC_New(GuardObject, guard_type);
  if (guard == nullptr) return nullptr;
  guard->state = state.release();
  PyObject_GC_Track(guard);
  return reinterpret_cast<PyObject*>(guard);
}

bool add_guard_type(PyObject* module) {
  guard_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kGuardSpec));
  if (guard_type == nullptr) return false;
  Py_INCREF(guard_type);
  return PyModule_AddObject(module, "Guard", reinterpret_cast<PyObject*>(guard_type)) == 0;
}

}  // namespace kernwright::python
